"""Scripts of examples/ that know nothing of this project run as they are; their README.md lists them."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine import running, why_not
from harness import Launch, Project
from oci_service.handle import Service
from shop import Shop

from oci_cluster.system.console import say_to_stderr
from oci_cluster.system.envs.python_env import ensure_framework

CHECKOUT = Path(__file__).parents[2]
SAMPLES = CHECKOUT / "examples"
# The tutorial's, which is run by its own test.
TUTORIAL = "digits"
# With these versions the scripts were written.
EXTRA = {
    "dask": ("dask-ml==2025.1.0", "lightgbm==4.6.0", "xgboost-cpu==3.2.0"),
    "pytorch": ("lightning==2.6.6", "transformers==5.23.0"),
    "ray": ("gymnasium==1.2.2", "dm-tree==0.1.10", "lz4==4.4.5", "ormsgpack==1.13.1"),
}
# What main prints, by regular expressions.
PRINTS = {
    "dask/actors_and_bags.py": ("counter 45 queue 12 even sum 249500 workers 2",),
    "dask/arrays.py": (r"mean 10\.0 deviation 2\.0 largest singular value above 250: True",),
    "dask/dask_ml_pipeline.py": (
        r"clusters 4 incremental [01]\.\d search 1\.0",
        "predicted 3000",
    ),
    "dask/dataframes.py": ("rows 40000 countries CH,JP,NG mean fare 15",),
    "dask/delayed.py": ("words 320000 most common the",),
    "dask/futures.py": (r"pi is about 3\.1\d after 800000 darts on 2 workers",),
    "dask/joblib_search.py": (
        r"search above 0\.95: True",
        r"forest above 0\.95: True",
    ),
    "dask/lightgbm_classifier.py": (r"accuracy 0\.9\d trees 40 error below 1: True",),
    "dask/scheduler_ip.py": ("MAIN of 2 workers, total 41541750",),
    "dask/xgboost_regression.py": (
        r"rounds 40 .* last below 1: True residual 0\.",
        "fitted by the estimator 10",
    ),
    "pytorch/accelerate_loop.py": (r"processes 2 seen 480 accuracy above 0\.9: True",),
    "pytorch/checkpoint_resume.py": (r"began at epoch 3, loss below 0\.1: True",),
    "pytorch/ddp.py": (r"world 2 loss below 0\.01: True same weights: True",),
    "pytorch/distributed_checkpoint.py": ("parts 2 went on the same: True learned: True",),
    "pytorch/fsdp.py": (r"world 2 sharded: True loss below 0\.05: True",),
    "pytorch/lightning_module.py": (r"world 2 steps 128 loss below 0\.5: True",),
    "pytorch/sampler.py": ("all once: True shuffled anew: True total 70210",),
    "pytorch/trainer_tiny.py": ("world 2 steps 60 learned: True",),
    "tensorflow/autoshard_files.py": (r"workers 2 all wrote: True files 4 loss below 0\.1: True",),
    "tensorflow/backup_restore.py": ("resumed: True last epoch 5",),
    "tensorflow/custom_loop.py": (
        r"replicas 2 step 40 loss below 0\.01: True",
        "saved ckpt-1",
    ),
    "tensorflow/keras_fit.py": (r"workers 2 accuracy above 0\.85: True",),
    "tensorflow/parameter_server.py": ("chief workers 1 servers 2 learned: True",),
    "tensorflow/reads_tf_config.py": (
        "I am worker 0 of 2",
        r"loss below 0\.01: True weights 2 logs True",
    ),
    "horovod/keras_digits.py": (r"size 2 accuracy above 0\.8: True",),
    "horovod/pytorch_digits.py": (r"size 2 accuracy above 0\.9: True",),
    "horovod/pytorch_elastic.py": (r"size 2 epochs 6 loss below 0\.1: True",),
    "horovod/tensorflow_tape.py": (r"size 2 same weights: True loss below 0\.01: True",),
    "ray/actors.py": (r"counter 100 squares 8555 done 30 \['hello Ada', 'hello Grace'\]",),
    "ray/batches.py": (
        r"rows above 17000: True same: True smallest 11\.5",
        "cities Bern,Lagos,Osaka mean 17",
    ),
    "ray/rllib_cartpole.py": ("iterations 3 returns above 10: True",),
    "ray/tasks.py": (
        r"primes 4203 parts 16 split \['a', 'c', 'e'\] \['b', 'd'\] last 999",
        "nodes 3 error bad number 3",
    ),
    "ray/train_torch.py": (r"epochs 6 rows 256 loss below 0\.05: True",),
    "ray/tune_asha.py": (
        r"trials 8 stopped early: True best below 0\.1: True",
        "checkpoint True",
    ),
    "notebooks/dask_trips.ipynb": ("cities Bern,Osaka trips 12000 workers 2",),
    "notebooks/pytorch_linear.ipynb": (
        "world 2",
        r"loss below 0\.01: True",
    ),
}
# The longest took 51 s on two busy CPUs. What installs gigabytes first does that before the launch.
PATIENCE_S = 300.0
# Horovod is compiled in its image's build, after torch's CUDA build has come where no other is at hand.
BUILD_PATIENCE_S = 2400.0
pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class Sample:
    """A row of the table."""

    path: str
    launch: str
    extra: tuple[str, ...]
    prints: tuple[str, ...]

    @property
    def framework(self) -> str:
        """The folder is named after it; of notebooks the first word."""
        return self.path.removeprefix("notebooks/").partition("_" if self.is_notebook else "/")[0]

    @property
    def is_notebook(self) -> bool:
        return self.path.startswith("notebooks/")


def read_table() -> list[Sample]:
    """Return the samples that README.md lists; of a cell that is what stands in backquotes."""
    rows = re.findall(r"^\| `(\w+/\w+\.(?:py|ipynb))` \|(.*)\|$", (SAMPLES / "README.md").read_text(), re.MULTILINE)
    samples = []
    for path, rest in rows:
        _, launch, extra = (tuple(re.findall("`(.+?)`", cell)) for cell in rest.split("|"))
        samples.append(Sample(path, launch[0], extra, PRINTS[path]))
    return samples


TABLE = read_table()


def test_the_table_has_every_sample_and_none_names_this_project() -> None:
    """What stands here without being run would be of no use."""
    paths = [path for path in SAMPLES.glob("*/*.*") if path.parent.name != TUTORIAL]
    found = {str(path.relative_to(SAMPLES)) for path in paths if path.suffix in {".py", ".ipynb"}}
    assert sorted(found) == sorted(sample.path for sample in TABLE)
    for path in found:
        assert not re.search(r"oci.cluster|launch\.sh|BACKUP_DIR|NODE_|CLUSTER_", (SAMPLES / path).read_text()), path
    for sample in TABLE:
        known = {entry.partition("==")[0] for entry in EXTRA.get(sample.framework, ())}
        assert set(sample.extra) <= known, sample.path


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Return a copy of the checkout, without clusters; whatever a test starts in it is ended."""
    path = tmp_path / "my project"
    for folder in ("common", "scripts", *{sample.framework for sample in TABLE}):
        shutil.copytree(CHECKOUT / folder, path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (path / ".venv").symlink_to(CHECKOUT / ".venv")
    project = Project(path, tmp_path)
    yield project
    project.end_all()


def environment_of(sample: Sample) -> Path:
    """Return the interpreter of the framework's environment, which is made where it is not there."""
    return ensure_framework(CHECKOUT, CHECKOUT / sample.framework / "env.yaml", say_to_stderr("test"))


def launch(project: Project, sample: Sample, *options: str, **environ: str) -> Launch:
    """Launch *sample* by the name that it has; in a folder of its own, where it may write."""
    shutil.copy(SAMPLES / sample.path, project.code)
    before, _, arguments = sample.launch.partition(" -- ")
    rest = ["--", *shlex.split(arguments)] if arguments else []
    return project.launch(
        sample.framework, *shlex.split(before), "--entry", Path(sample.path).name, *options, *rest, **environ
    )


def assert_printed(sample: Sample, text: str) -> None:
    """Assert that *text* holds all of *sample*'s ``PRINTS``."""
    assert [line for line in sample.prints if not re.search(line, text)] == [], text


@pytest.mark.parametrize("sample", TABLE, ids=lambda sample: sample.path)
def test_sample_runs_as_it_is(project: Project, sample: Sample) -> None:
    """On this machine: its own result, 0, and nothing left."""
    environment_of(sample)
    # All of a framework's: one environment for them.
    extra = ["--with", ",".join(EXTRA[sample.framework])] if sample.extra else []
    launched = launch(project, sample, *extra)
    is_to_install = sample.extra or sample.is_notebook
    assert launched.wait(3 * PATIENCE_S if is_to_install else PATIENCE_S) == 0, f"{launched.err}\n{launched.out}"
    assert_printed(sample, launched.log("MAIN"))
    launched.assert_nothing_left()


def image(project: Project, framework: str, python: Path) -> Mapping[str, object]:
    """Return what the stand-in has in the place of an image: an interpreter, and the project's copy."""
    return {
        "digest": f"sha256:{'0' * 64}",
        "entrypoint": [str(project.path / "common" / "entrypoint.sh")],
        "directory": "/",
        "readable": [str(path) for path in (CHECKOUT / ".venv", sys.base_prefix, project.path)],
        "environment": {
            "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": sysconfig.get_path("purelib"),  # ocifs, behind what the environment has itself
        },
    }


@pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")
@pytest.mark.parametrize(
    "path",
    ["dask/futures.py", "pytorch/sampler.py", "tensorflow/keras_fit.py", "horovod/pytorch_digits.py", "ray/tasks.py"],
)
def test_sample_runs_as_a_job(project: Project, tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    """One of each framework on the stand-in for OCI; the script travels as an archive, and the logs come back."""
    (sample,) = (sample for sample in TABLE if sample.path == path)
    name = f"iad.ocir.io/stand-in/{sample.framework}:1"
    # A short path: a job's TMPDIR is in there, and a socket in that, whose path may have 107 bytes (unix(7)).
    with Service(tmp_path_factory.mktemp("s") / "s", python=sys.executable) as service:
        service.control({"images": {name: image(project, sample.framework, environment_of(sample))}})
        environ = {**service.environ, **service.settings, "BACKEND": "oci", "IMAGE": name}
        launched = launch(project, sample, **environ)
        assert launched.wait(PATIENCE_S) == 0, f"{launched.err}\n{launched.out}"
        assert_printed(sample, launched.out)
        assert {run["lifecycleState"] for run in service.job_runs()} == {"SUCCEEDED"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Return what builds images; the engine and all that it has goes with the test."""
    with running(tmp_path / "e") as engine:
        yield Shop(engine, tmp_path, sorted({sample.framework for sample in TABLE}), patience_s=BUILD_PATIENCE_S)


@pytest.mark.timeout(2 * BUILD_PATIENCE_S)
@pytest.mark.skipif(bool(why_not()), reason=f"an engine: {why_not()}")
@pytest.mark.parametrize("path", ["tensorflow/keras_fit.py", "horovod/pytorch_digits.py"])
def test_sample_runs_in_containers(shop: Shop, tmp_path: Path, path: str) -> None:
    """Of the two frameworks whose images take minutes; of the others it is a test of `tests/clusters`."""
    (sample,) = (sample for sample in TABLE if sample.path == path)
    shop.make(f"build-{sample.framework}")
    project = Project(shop.path, tmp_path)
    try:
        launched = shop.launch_with(project, sample.framework, SAMPLES / path, sample.launch)
        assert_printed(sample, launched.out)
        assert shop.engine.run("ps", "--all", "--quiet").stdout == ""
    finally:
        project.end_all()
