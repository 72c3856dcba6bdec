"""Find the best parameters for a classifier of handwritten digits: a cross-validated search on a Dask cluster.

Plain Dask: Client() finds the cluster that runs this script. `python train.py` alone starts workers of its own.
"""

import argparse
import json
import os
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import mean

from distributed import Client, as_completed, get_worker
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import SVC

GRID = {"C": [1, 3, 10], "gamma": [0.0005, 0.001, 0.002]}


def fit_and_score(params, fold, images, digits, folds):
    """Learn from all folds but one and score on that one. This runs on the workers."""
    learn, validate = folds[fold]
    model = SVC(**params).fit(images[learn], digits[learn])
    score = model.score(images[validate], digits[validate])
    return {"params": params, "score": score, "worker": str(get_worker().name)}


def search(client, images, digits, folds):
    """Try every combination of GRID on every fold; return the results in that order."""
    combinations = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    params, fold = zip(*product(combinations, range(len(folds))), strict=True)
    # The data goes to every worker once; the tasks only name it.
    images, digits, folds = client.scatter([images, digits, folds], broadcast=True)
    futures = client.map(fit_and_score, params, fold, images=images, digits=digits, folds=folds)
    for done, (_, result) in enumerate(as_completed(futures, with_results=True), start=1):
        if done % 10 == 0 or done == len(futures):
            print(f"{done:4} of {len(futures)} fits, the last by {result['worker']}", flush=True)
    return client.gather(futures)


def main():
    parser = argparse.ArgumentParser(description="Search the parameters of a digit classifier on a Dask cluster.")
    parser.add_argument("--folds", type=int, default=4, help="of the cross-validation (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    args = parser.parse_args()

    images, digits = load_digits(return_X_y=True)
    images, test_images, digits, test_digits = train_test_split(
        images, digits, test_size=0.25, stratify=digits, random_state=args.seed
    )
    folds = list(StratifiedKFold(args.folds, shuffle=True, random_state=args.seed).split(images, digits))

    with Client() as client:
        print(f"{len(images)} images to learn from, {len(test_images)} to test with; workers: {len(client.nthreads())}")
        results = search(client, images, digits, folds)

    print("\nworker       fits  share")
    for worker, fits in sorted(Counter(result["worker"] for result in results).items()):
        print(f"{worker:<12} {fits:4}  {fits / len(results):5.0%}")

    def cv_score(params):
        return mean(result["score"] for result in results if result["params"] == params)

    best = max((result["params"] for result in results), key=cv_score)
    test_score = SVC(**best).fit(images, digits).score(test_images, test_digits)
    print(f"\nbest parameters: {best}")
    print(f"mean score of {args.folds} folds: {cv_score(best):.4f}; on the test images: {test_score:.4f}")

    if output_dir := os.environ.get("OUTPUT_DIR"):
        summary = {"params": best, "cv_score": cv_score(best), "test_score": test_score}
        Path(output_dir, "best.json").write_text(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()
