"""What is installed: by a first dry run of a fresh copy, and by `pip install` of the package with each extra."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Project

CHECKOUT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
OCI = {
    "COMPARTMENT_OCID": "ocid1.compartment.oc1..aaaacompartment",
    "PROJECT_OCID": "ocid1.datascienceproject.oc1.iad.aaaaproject",
    "SUBNET_OCID": "ocid1.subnet.oc1.iad.aaaasubnet",
    "WORK_DIR": "oci://bucket@ns/work",
}
KUBECONFIG = """
current-context: mine
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
contexts: [{name: mine, context: {cluster: here, user: me, namespace: my-team}}]
"""
# Folders and modules of the package that an extra is for; all else is for everybody.
ELSEWHERE = "images/install.py"  # runs in the build of an image, which has a list of its own
SERVED = {
    "": (),
    "dask": ("api/dask.py",),
    "oci": ("backends/oci/",),
    "kubernetes": ("backends/kubernetes/",),
}
# Imports every module; with a backend's extra, finds what they import later, too.
LOOK = """
import ast, importlib, importlib.util, pathlib, sys
import oci_cluster
extra, others = sys.argv[1], sys.argv[2:]
root = pathlib.Path(oci_cluster.__file__).parent
assert "site-packages" in str(root), root
count = 0
for path in sorted(root.rglob("*.py")):
    place = path.relative_to(root).as_posix()
    if place == "__main__.py" or place.startswith(tuple(others)):
        continue
    importlib.import_module(".".join(["oci_cluster", *place.removesuffix(".py").removesuffix("/__init__").split("/")]))
    count += 1
    if extra not in {"oci", "kubernetes"}:
        continue
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        for name in {name.partition(".")[0] for name in names} - {"IPython", "typing_extensions"}:
            assert importlib.util.find_spec(name), f"{place} imports {name}"
print(count)
"""


def test_a_first_dry_run_installs_what_it_renders_with_and_no_sdk(tmp_path: Path) -> None:
    """Half a gigabyte is not changed nothing; the namespace that a kubeconfig names is known all the same."""
    for folder in ("common", "scripts", "dask"):
        shutil.copytree(CHECKOUT / folder, tmp_path / "fresh" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    project, packages = Project(tmp_path / "fresh", tmp_path), tmp_path / "fresh" / ".venv" / "lib"
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)

    def dry_run(backend: str, **settings: str) -> str:
        own = {"IMAGE": "iad.ocir.io/ns/dask:1", "HOME": str(tmp_path), **settings}
        launch = project.launch("dask", "3", "--dry-run", BACKEND=backend, **own)
        assert launch.wait() == 0, launch.err
        return launch.out

    def installed() -> set[str]:
        return {path.name.partition("-")[0].lower() for path in packages.glob("python*/site-packages/*.dist-info")}

    assert "Run a cluster of dask on OCI Data Science" in dry_run("oci", **OCI)
    assert installed() >= {"jinja2", "pathspec"}
    assert installed() & {"oci", "oci_cli", "ocifs", "lightkube"} == set()
    assert "namespace: my-team" in dry_run("kubernetes", KUBECONFIG=str(tmp_path / "kubeconfig"))
    assert installed() & {"oci", "oci_cli", "ocifs"} == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package as it is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [UV, "build", "--quiet", "--wheel", "--out-dir", folder, CHECKOUT / "common"]
    subprocess.run(build, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.parametrize("extra", SERVED)
def test_an_extra_has_all_that_its_modules_import(wheel: Path, tmp_path: Path, extra: str) -> None:
    """In an environment that has nothing else; also what they import only when it is needed."""
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "env"], check=True)
    package = f"{wheel}[{extra}]" if extra else str(wheel)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, package], check=True)
    others = {place for places in SERVED.values() for place in places} - {*SERVED[extra]}
    look = [python, "-I", "-c", LOOK, extra, ELSEWHERE, *others]
    done = subprocess.run(look, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
