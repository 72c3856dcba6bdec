"""LightGBM's estimators for Dask: the workers train together, over sockets of their own."""

import dask.array as da
import lightgbm as lgb
from dask.distributed import Client
from sklearn.datasets import make_classification

if __name__ == "__main__":
    client = Client(n_workers=2)
    X, y = make_classification(4_000, 12, n_informative=6, random_state=1)
    dX, dy = da.from_array(X, chunks=(500, 12)), da.from_array(y, chunks=500)
    classifier = lgb.DaskLGBMClassifier(n_estimators=40, num_leaves=15, verbosity=-1)
    classifier.fit(dX, dy)
    accuracy = float((classifier.predict(dX) == dy).mean().compute())
    regressor = lgb.DaskLGBMRegressor(client=client, n_estimators=20, verbosity=-1).fit(dX, dX[:, 0] * 2)
    error = float(((regressor.predict(dX) - dX[:, 0] * 2) ** 2).mean().compute())
    print(f"accuracy {accuracy:.2f} trees {classifier.booster_.num_trees()} error below 1: {error < 1}")
