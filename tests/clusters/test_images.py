"""`make build push` with a real engine and a real registry, and job runs of what was pushed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hosts
import pytest
from engine import running, why_not
from harness import Project, wait_until
from oci_service.handle import Service
from one_node import EXAMPLES, assert_runs_alone
from private_index import PASSWORD, nobody_sees_it, serving
from shop import PATIENCE_S, TOKEN, Shop

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=f"an engine: {WHY_NOT}"),
    pytest.mark.timeout(1800),  # the first one builds the images
]

CHECKOUT = Path(__file__).resolve().parents[2]
FRAMEWORKS = tuple(EXAMPLES)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Return a shop in whose registry is the image of Dask, with more packages."""
    place = tmp_path_factory.mktemp("images")
    # .ci/run has the same built there beforehand, while other tests wait.
    directory = Path(os.environ.get("TEST_ENGINE_DIR") or place / "e")
    with running(directory) as engine:
        shop = Shop(engine, place, FRAMEWORKS)
        shop.environ["EXTRA_ENV"] = str(shop.extra_env)
        shop.make("build-dask", "push-dask")
        yield shop


@pytest.fixture(scope="module")
def shop_with_ray(shop: Shop) -> Shop:
    """Return the same, with Ray's image, which takes as long as the others together."""
    shop.make("build-ray", "push-ray", EXTRA_ENV="")
    return shop


# --- What is in an image --------------------------------------------------------------------------------------------


def test_the_image_of_dask_is_as_small_as_the_readme_says(shop: Shop) -> None:
    """LightGBM is there besides, which is 15 MB."""
    assert size_mb(shop, "dask") < 700 + 15


def test_the_image_of_pytorch_is_as_small_as_the_readme_says(
    shop: Shop, record_property: Callable[[str, object], None]
) -> None:
    shop.make("build-pytorch", "push-pytorch", EXTRA_ENV="")
    if has_cpu_build(shop, "pytorch", record_property):
        assert size_mb(shop, "pytorch") < 1300


def test_the_image_of_ray_is_as_small_as_the_readme_says(
    shop_with_ray: Shop, record_property: Callable[[str, object], None]
) -> None:
    """On the disk; and what a machine fetches, the layers as the registry has them."""
    if has_cpu_build(shop_with_ray, "ray", record_property):
        assert size_mb(shop_with_ray, "ray") < 1650
        assert fetched_mb(shop_with_ray, "ray") < 500


def test_the_image_of_ray_names_its_ports(shop_with_ray: Shop) -> None:
    details = json.loads(shop_with_ray.engine.run("inspect", shop_with_ray.record("ray")["id"]).stdout)[0]
    ports = details["Config"]["ExposedPorts"]
    assert {f"{port}/tcp" for port in (6379, 6380, 6387, 8265, 10001, 10002, 10999)} <= set(ports)


def size_mb(shop: Shop, framework: str) -> float:
    details = json.loads(shop.engine.run("inspect", shop.record(framework)["id"]).stdout)[0]
    return float(details["Size"]) / 1e6


def has_cpu_build(shop: Shop, framework: str, record_property: Callable[[str, object], None]) -> bool:
    """Return whether torch is the build for CPUs, of which sizes are told; of the index's build for CUDA none are."""
    torch = shop.inside(framework, "python", "-c", "import importlib.metadata as m; print(m.version('torch'))")
    if torch.endswith("+cpu"):
        return True
    record_property(
        "not applicable", f"the bound on the image of {framework}, which holds torch {torch}, no build +cpu"
    )
    return False


def fetched_mb(shop: Shop, framework: str) -> float:
    """Return how much a machine fetches that has nothing of an image: its layers, as the registry keeps them."""
    digest = shop.record(framework)["digest"].removeprefix("sha256:")
    blobs = shop.engine.directory / "registry" / "docker" / "registry" / "v2" / "blobs" / "sha256"
    manifest = json.loads((blobs / digest[:2] / digest / "data").read_text())
    return sum(float(layer["size"]) for layer in manifest["layers"]) / 1e6


def test_packages_of_the_user_are_there_and_listed(shop: Shop) -> None:
    """EXTRA_ENV: what it names is imported, and stands in the list that is kept beside the digest."""
    assert shop.inside("dask", "python", "-c", "import lightgbm; print(lightgbm.__version__)") == "4.6.0"
    listed = (shop.path / ".images" / "dask.packages.txt").read_text().splitlines()
    assert {"lightgbm==4.6.0", "distributed==2026.8.0"} <= set(listed)
    assert any(line.startswith("debian tini==") for line in listed)


def test_a_command_is_run_by_an_ordinary_user_below_tini(shop: Shop) -> None:
    """`docker run IMAGE bash`: uid 1000 with a home, in the code's directory, in which it may write."""
    script = (
        "id -u; whoami; pwd; ls; touch x && echo written; cat /proc/1/comm; touch /opt/env/x 2>/dev/null || echo kept"
    )
    assert shop.inside("dask", "bash", "-c", script).split() == [
        "1000",
        "node",
        "/code",
        "train.py",
        "written",
        "tini",
        "kept",
    ]


def test_packages_are_compiled(shop: Shop) -> None:
    """A user who may not write there would compile them at every start."""
    modules = "[module.__cached__ for module in [*sys.modules.values()] if getattr(module, '__cached__', '')]"
    code = f"import sys, ocifs, distributed; print(*{modules})"
    cached = shop.inside("dask", "python", "-c", code).split()
    own = [path for path in cached if path.startswith("/opt/env/")]
    assert len(own) > 500
    missing = shop.inside("dask", "sh", "-c", f"for f in {' '.join(own)}; do [ -f $f ] || echo $f; done")
    assert missing == ""


def test_labels_tell_what_it_is(shop: Shop) -> None:
    """OCI's own annotations; the ports are those in use."""
    config = json.loads(shop.engine.run("inspect", shop.record("dask")["id"]).stdout)[0]["Config"]
    assert config["Labels"]["org.opencontainers.image.version"] == "1"
    assert {f"{port}/tcp" for port in (8786, 8787, 8700, 8800, 3000, 3100)} <= set(config["ExposedPorts"])
    assert config["Entrypoint"][:2] == ["tini", "--"]


def test_nothing_that_a_build_was_lent_is_in_an_image(shop: Shop) -> None:
    """Neither in a file, nor in what says how it was made: a token of pip's settings, a proxy, certificates."""
    found = shop.inside(
        "dask", "sh", "-c", f"grep -rl {TOKEN} /opt /etc /root /home /var /tmp /run /code /usr/local || true"
    )
    assert found == ""
    image = shop.record("dask")["id"]
    told = shop.engine.run("history", "--no-trunc", image).stdout + shop.engine.run("inspect", image).stdout
    assert [word for word in (TOKEN, "proxy", "PROXY", "find-links", "run/secrets") if word in told] == []


@pytest.mark.nightly  # Dask's environment is made once more
def test_the_password_of_a_private_index_is_seen_nowhere(shop: Shop, tmp_path: Path) -> None:
    """In no process' arguments while an image is built with uv, in no layer, in nothing that says how it was made."""
    (tmp_path / "private.yaml").write_text('{"dependencies": [{"pip": ["mine==1.0"]}]}')
    listening = hosts.listen_in(shop.engine.pid, "127.0.0.1", 0)
    before = shop.record("dask")
    try:
        with serving(tmp_path / "index", listening, "mine==1.0") as url, nobody_sees_it():
            environ = {"PIP_EXTRA_INDEX_URL": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "TAG": "2"}
            shop.make("build-dask", EXTRA_ENV=str(tmp_path / "private.yaml"), **environ)
        image = shop.record("dask")["id"]
        assert image != before["id"]
        assert shop.inside("dask", "python", "-c", "import mine; print(mine.version)") == "1.0"
        told = shop.engine.run("history", "--no-trunc", image).stdout + shop.engine.run("inspect", image).stdout
        assert PASSWORD not in told
        shop.engine.run("save", "--output", str(tmp_path / "image.tar"), image)
        assert found_in_layers(tmp_path / "image.tar", PASSWORD.encode()) == []
        # What is looked for would be found: a name that is in every image of Dask.
        assert found_in_layers(tmp_path / "image.tar", b"mine==1.0")
    finally:
        shop.make("build-dask")


def found_in_layers(image: Path, text: bytes) -> list[str]:
    """Return the files of an image, in whichever layer, that have *text*."""
    found = []
    with tarfile.open(image) as layers:
        for layer in layers:
            content = layers.extractfile(layer)
            if content is None or not layer.name.endswith(("layer.tar", ".json")):
                continue
            if layer.name.endswith(".json"):
                found += [layer.name] if text in content.read() else []
                continue
            with tarfile.open(fileobj=content) as files:
                opened = ((file.name, files.extractfile(file)) for file in files if file.isfile())
                found += [name for name, file in opened if file and text in file.read()]
    return found


# --- Build and push -------------------------------------------------------------------------------------------------


def test_an_unchanged_build_and_push_does_nothing(shop: Shop) -> None:
    """Nothing is built or sent: 0.7 s for all four frameworks on 2 cores, which a busy machine cannot be held to."""
    before = shop.record("dask")
    done = shop.make("build-dask", "push-dask")
    assert "dask:1 is unchanged" in done.stderr
    assert f"dask:1@{before['digest']} is in the registry" in done.stderr
    assert shop.record("dask") == before


def test_a_change_of_the_users_code_makes_one_small_layer(shop: Shop) -> None:
    """The last one, of less than 1 MB; the others are not sent again."""
    code = shop.path / "src"
    code.mkdir()
    before = shop.layers("dask")
    (code / "train.py").write_text("print('mine')\n")
    try:
        shop.make("build-dask", "push-dask", CODE_DIR="src", TAG="2")
        after = shop.layers("dask")
        sent = (shop.path / ".images" / "dask.push.log").read_text()
        assert (after[:-1] == before[:-1], after[-1] == before[-1]) == (True, False)
        assert len(re.findall(r": Pushed", sent)) == 1
        assert shop.inside("dask", "python", "/code/train.py") == "mine"
        layers = ["history", "--human=false", "--format", "{{.Size}} {{.CreatedBy}}", shop.record("dask")["id"]]
        made = [line.split(" ", 1) for line in shop.engine.run(*layers).stdout.splitlines()]
        (size,) = [int(size) for size, maker in made if "COPY src /code" in maker]
        assert size < 1e6
    finally:
        shop.make("build-dask", "push-dask")


def test_requirements_that_contradict_each_other_stop_the_build(shop: Shop, tmp_path: Path) -> None:
    """Both are named, and the files that ask; no image is made, and the record of the last one stays."""
    before = shop.record("dask")
    (tmp_path / "old.yaml").write_text('{"dependencies": [{"pip": ["distributed<2026"]}]}')
    done = shop.make("build-dask", EXTRA_ENV=str(tmp_path / "old.yaml"), check=False)
    assert done.returncode == 2
    assert "Error 78" in done.stderr
    (said,) = re.findall("Because you require .*unsatisfiable", done.stderr)
    assert "distributed<2026" in said
    assert "distributed==2026.8.0" in said
    assert "dask/env.yaml, dask/extra-env-1-old.yaml; what a lock has is not replaced" in done.stderr
    assert shop.record("dask") == before


def test_killing_the_engine_in_a_build_leaves_nothing_in_the_way(shop: Shop) -> None:
    """The build fails with a word of why; the engine's next start, and the next build, are as if nothing had been."""
    log = shop.path / ".images" / "dask.log"
    log.unlink()
    command = ["make", "build-dask", "ENV_FILE=pytorch/env.yaml"]
    with subprocess.Popen(command, cwd=shop.path, env=shop.environ, stderr=subprocess.PIPE, text=True) as build:
        wait_until(lambda: log.exists() and "Resolved" in log.read_text(), "the build to install packages")
        shop.engine.kill()
        said = build.communicate(timeout=PATIENCE_S)[1]
    assert build.returncode == 2
    assert "'docker build ...' for dask failed" in said
    down = shop.make("build-dask", check=False)
    assert "/usr/bin/docker info" in down.stderr
    shop.engine.start()
    (shop.path / "dask" / "example" / "more.py").write_text("print('more')\n")
    assert "dask: built" in shop.make("build-dask").stderr
    assert shop.inside("dask", "python", "/code/more.py") == "more"
    assert not [*(shop.path / "dask").glob("extra-env-*")]


# --- Clusters of images ---------------------------------------------------------------------------------------------


@pytest.fixture
def project(shop: Shop, tmp_path: Path) -> Iterator[Project]:
    project = Project(shop.path, tmp_path)
    yield project
    project.end_all()
    shutil.rmtree(shop.path / ".clusters", ignore_errors=True)


@pytest.mark.parametrize(
    ("launched", "said"),
    [
        ("dask 1", "best parameters"),
        ("pytorch 1 -- --epochs 2", "accuracy"),
        ("ray 1 -- --epochs 2", "workers 2"),
    ],
)
def test_job_runs_pull_what_was_pushed_and_run_it(
    shop: Shop, project: Project, tmp_path: Path, launched: str, said: str
) -> None:
    """`BACKEND=oci` without a word of the image: its digest is in the Job, and its example ends with 0 on all nodes."""
    framework, workers, *arguments = launched.split()
    shop.make(f"build-{framework}", f"push-{framework}")
    with Service(tmp_path / "s", engine=shop.engine) as service:
        launch = project.launch(framework, workers, *arguments, **service.environ, **service.settings, BACKEND="oci")
        assert launch.wait(PATIENCE_S) == 0, launch.err
        assert said in launch.out
        details = service.jobs()[0]["jobEnvironmentConfigurationDetails"]
        record = shop.record(framework)
        assert (details["image"], details["imageDigest"]) == (record["image"], record["digest"])
        assert [run["lifecycleState"] for run in service.job_runs()] == ["SUCCEEDED"] * (int(workers) + 1)


@pytest.mark.parametrize(
    ("path", "workers", "said"),
    [("dask/futures.py", "2", "pi is about 3.1"), ("pytorch/sampler.py", "1", "all once: True")],
)
def test_scripts_of_others_run_in_containers(shop: Shop, project: Project, path: str, workers: str, said: str) -> None:
    """`BACKEND=docker` with what was built; the scripts, of examples/, know nothing of this project."""
    framework = path.partition("/")[0]
    shop.make(f"build-{framework}", f"push-{framework}")
    launch = shop.launch_with(project, framework, CHECKOUT / "examples" / path, workers)
    assert said in launch.out


@pytest.mark.nightly  # builds images of all five; Horovod's is compiled for ten minutes
@pytest.mark.parametrize("framework", EXAMPLES)
def test_one_container_is_a_cluster(shop: Shop, project: Project, framework: str) -> None:
    """The example's result and 0, and 7, of all five."""
    shop.make(f"build-{framework}", f"push-{framework}")
    project.environ |= {"DOCKER": shop.engine.docker, "DOCKER_HOST": shop.engine.environ["DOCKER_HOST"]}
    assert_runs_alone(project, framework, PATIENCE_S, BACKEND="docker")
    assert shop.engine.run("ps", "--all", "--quiet").stdout == ""


# --- A project of the user's own -------------------------------------------------------------------------------------


@pytest.fixture
def own(shop: Shop, tmp_path: Path, framework: str) -> Iterator[Project]:
    """Return a project that new.sh has put into a repository with images, a Makefile and a .dockerignore of its own."""
    root = tmp_path / "my own project"
    files = {
        "src/train.py": "import os, mine\nprint(mine.WORDS, os.environ['MODE'], os.path.exists('.env'), flush=True)\n",
        "src/mine.py": "WORDS = 'my own code'\n",
        "src/.env": "PASSWORD=x\n",
        "app/Dockerfile": "FROM scratch\n",
        "Makefile": "build:\n\t@echo my own build\n",
        ".dockerignore": "*\n!src\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".venv").symlink_to(CHECKOUT / ".venv")
    words = [framework, str(root), "--code", "src", "--entry", "train.py"]
    subprocess.run([CHECKOUT / "scripts" / "new.sh", *words], check=True, capture_output=True)
    (tmp_path / "launches").mkdir()
    project = Project(root, tmp_path / "launches")
    project.code = root
    yield project
    project.end_all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_project_of_the_users_own_builds_pushes_and_launches(
    shop: Shop, own: Project, tmp_path: Path, framework: str
) -> None:
    """What new.sh has made there, with the user's code; the other layers are those of the checkout's images."""
    environ = {**shop.environ, "REGISTRY": f"{shop.engine.registry}/own"}

    def make(*targets: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", *targets]
        done = subprocess.run(command, cwd=own.path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    assert make("build").stdout == "my own build\n"
    said = make("clusters-build", "push").stderr
    assert f"{framework}: built 127.0.0.1:5000/own/{framework}:1" in said
    assert f"own/{framework}:1@sha256:" in said
    record = json.loads((own.path / ".images" / f"{framework}.json").read_text())
    container = ["run", "--rm", "--network", "none", record["id"], "ls", "-A", "/code"]
    assert shop.engine.run(*container).stdout.split() == ["mine.py", "train.py"]
    assert not [*own.path.rglob("Dockerfile.dockerignore")]

    engine = {"DOCKER": shop.engine.docker, "DOCKER_HOST": shop.engine.environ["DOCKER_HOST"]}
    launch = own.launch(framework, "1", BACKEND="docker", **engine)
    assert launch.wait(PATIENCE_S) == 0, launch.err
    assert "my own code MAIN" in launch.out
    with Service(tmp_path / "s", engine=shop.engine) as service:
        launch = own.launch(framework, "2", **service.environ, **service.settings, BACKEND="oci")
        assert launch.wait(PATIENCE_S) == 0, launch.err
        assert "my own code MAIN False" in launch.out
        details = service.jobs()[0]["jobEnvironmentConfigurationDetails"]
        assert (details["image"], details["imageDigest"]) == (record["image"], record["digest"])


# Objects of 1.2 GB, for which two nodes of 1.5 GB have room in 30 % of that.
RAY = """
import sys
import numpy
import ray

ray.init(num_cpus=4)

@ray.remote
def make(number):
    return numpy.full(20_000_000, number % 256, numpy.uint8), ray.get_runtime_context().get_node_id()

made = [make.remote(number) for number in range(60)]
nodes, total = set(), 0
for block, node in map(ray.get, made):
    nodes.add(node)
    total += int(block[-1])
print("total", total, "nodes", len(nodes), flush=True)
sys.exit(7)
"""


def test_ray_computes_in_containers_of_what_was_pushed(shop_with_ray: Shop, project: Project) -> None:
    """By the digest; what does not fit into the object store is spilled; the script's own code comes out."""
    shop = shop_with_ray
    record = shop.record("ray")
    entry = project.write("spill.py", RAY)
    project.environ |= {"DOCKER": shop.engine.docker, "DOCKER_HOST": shop.engine.environ["DOCKER_HOST"]}
    image = f"{record['image'].rpartition(':')[0]}@{record['digest']}"
    limits = {"BACKEND": "docker", "IMAGE": image, "MEMORY": "1500m", "SHM_SIZE": "64m"}
    launch = project.launch("ray", "1", "--entry", entry, **limits)
    assert launch.wait(PATIENCE_S) == 7, launch.err
    assert "total 1770 nodes 2" in launch.out
    assert shop.engine.run("ps", "--all", "--quiet").stdout == ""
