"""`kind: job` of ADS: a runtime `pyTorchDistributed` as settings and a launch."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from unit.ads_migration.ads_yaml import Kind, indented, told

from oci_cluster.ads_migration import conversion, from_ads
from oci_cluster.ads_migration.conversion import Conversion
from oci_cluster.ads_migration.from_ads import Asked, convert
from oci_cluster.errors import SettingsError

BASE = """
kind: job
spec:
  name: mine
  infrastructure:
    type: dataScienceJob
    spec: {{shapeName: VM.GPU.A10.1, displayName: mine}}
  runtime:
    kind: runtime
    type: {kind}
    spec:
      replicas: 3
      {runtime}
"""


def write(folder: Path, runtime: str, kind: str = "pyTorchDistributed") -> Path:
    path = folder / "job.yaml"
    path.write_text(BASE.format(kind=kind, runtime=indented(runtime, 6)))
    return path


def converted(folder: Path, runtime: str, code: str = "") -> Conversion:
    for name in ("train.py", "src/train.py", "src/deep/train.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return convert(Asked(write(folder, runtime), "oci", code=code))


def of_script(found: Conversion) -> tuple[str, ...]:
    names = ("CODE_DIR", "ENTRY_POINT", "ENTRY_MODULE", "ARGS")
    return tuple(found.settings[name] for name in names if name in found.settings)


@pytest.mark.parametrize(
    ("lines", "folder", "entry", "args"),
    [
        ("command: torchrun train.py --epochs 3 'a b'", "", "train.py", ["--epochs", "3", "a b"]),
        ("command: torchrun --nnodes 2 --log_dir logs train.py", "", "train.py", None),
        ("command: accelerate launch --num_processes 4 train.py x", "", "train.py", ["x"]),
        ("command: torchrun -m package.train --lr 1", "", "package.train", ["--lr", "1"]),
        ("{entrypoint: train.py, args: [-v]}", "", "train.py", ["-v"]),
        ("{scriptPathURI: src/train.py, entrypoint: train.py}", "src", "train.py", None),
        ("{scriptPathURI: src, command: torchrun src/train.py}", "src", "train.py", None),
        ("{scriptPathURI: src/, workingDir: src, command: torchrun deep/train.py}", "src", "deep/train.py", None),
        ("{scriptPathURI: src, workingDir: src/deep, command: torchrun train.py}", "src/deep", "train.py", None),
    ],
)
def test_a_command_becomes_a_script_with_its_arguments(
    tmp_path: Path, lines: str, folder: str, entry: str, args: list[str] | None
) -> None:
    runtime = lines.strip("{}").replace(", ", "\n") if lines.startswith("{") else lines
    found = converted(tmp_path, runtime)
    wanted = (str(tmp_path / folder), entry, *([json.dumps(args)] if args else []))
    assert of_script(found) == wanted
    assert (found.framework, found.workers, found.name) == ("pytorch", 2, "mine")
    assert found.settings["SHAPE"] == "VM.GPU.A10.1"
    assert found.is_whole


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        (
            "torchrun --nproc_per_node=4 --max-restarts 2 --rdzv_backend=c10d train.py",
            "NPROC_PER_NODE=4 MAX_RESTARTS=2",
        ),
        ("torchrun --nproc-per-node gpu --standalone train.py", ""),
        ("torchrun --log_dir logs --tee 3 train.py", "LAUNCHER_ARGS='--log_dir logs --tee 3'"),
        (
            "accelerate launch --use_fsdp --main_process_ip x --config_file a.yaml train.py",
            "LAUNCHER=accelerate LAUNCHER_ARGS='--use_fsdp --config_file a.yaml'",
        ),
        ("deepspeed --num_gpus 4 train.py --deepspeed ds.json", "LAUNCHER=deepspeed"),
    ],
)
def test_options_of_a_launcher_become_settings(tmp_path: Path, line: str, variables: str) -> None:
    found = converted(tmp_path, f"command: {line}")
    assert found.variables == dict(word.split("=", 1) for word in shlex.split(variables))
    assert found.is_whole


def test_other_fields(tmp_path: Path) -> None:
    runtime = """
    command: torchrun train.py
    env: {A: "1", LOCAL: /code/data}
    dependencies: {pipRequirements: requirements.txt}
    outputDir: data
    outputUri: oci://b@n/p/
    maximumRuntimeInMinutes: 90
    conda: {slug: pytorch110_p38_gpu_v1, type: service}
    freeformTags: {team: a}
    pythonPath: [lib]
    """
    found = converted(tmp_path, runtime)
    wanted = {
        "EXTRA_ENV": str(tmp_path / "requirements.txt"),
        "WORK_DIR": "oci://b@n/p/oci-cluster",
        "MAX_RUNTIME": "90m",
        "FREEFORM_TAGS": '{"team": "a"}',
    }
    assert found.settings.items() >= wanted.items()
    assert conversion.command(found, "launch.sh").endswith("--name mine --outputs data --env A=1 --env LOCAL=data")
    assert found.is_whole
    assert any("what ADS has left does not expire" in line for line in told(found, Kind.CHANGED))


def test_code_of_git(tmp_path: Path) -> None:
    runtime = """
    git: {url: 'https://host/r.git', commit: d91085d}
    command: torchrun deep/train.py
    dependencies: {pipRequirements: deep/requirements.txt}
    """
    found = converted(tmp_path, runtime)
    assert (
        found.settings.items() >= {"CODE_URI": "git+https://host/r.git@d91085d", "ENTRY_POINT": "deep/train.py"}.items()
    )
    assert "CODE_DIR" not in found.settings
    assert "copy the file here" in " ".join(told(found, Kind.LOST))


@pytest.mark.parametrize(
    ("runtime", "why"),
    [
        ("command: python train.py", "spec.runtime.spec.command: torchrun, accelerate launch or deepspeed start"),
        ("command: torchrun --nnodes 2", "spec.runtime.spec.command: it names no script of Python's"),
        ("command: torchrun train.py\ninputs: {'oci://b@n/x': data/x}", "inputs: no file is copied before the start"),
        ("command: torchrun train.py\nscriptPathURI: oci://b@n/code.zip", "scriptPathURI: unpack it here"),
        ("command: torchrun train.py\nentryFunction: main", "entryFunction: a script is run"),
        ("command: torchrun train.py\ndependencies: {pipPackages: x}", "pipPackages: list them in a file"),
        ("command: torchrun none.py", "there is no "),
    ],
)
def test_what_has_no_counterpart_says_why(tmp_path: Path, runtime: str, why: str) -> None:
    assert [line for line in told(converted(tmp_path, runtime), Kind.LOST) if why in line]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (
            "container",
            r"line 10, spec.runtime.type: .* pyTorchDistributed are read, got 'container'; its command is its",
        ),
        ("python", "launch.sh pytorch 0 --entry FILE"),
        ("''", "got ''; see docs/from-ads.md"),
    ],
)
def test_a_job_of_another_type_is_refused(tmp_path: Path, kind: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        convert(Asked(write(tmp_path, "command: torchrun train.py", kind), "oci"))


@pytest.mark.parametrize(
    ("lines", "why"),
    [('command: "torchrun \'train.py"', "No closing quotation"), ("replicas: 0", r"replicas: .*0")],
)
def test_a_field_of_another_form_ends_it(tmp_path: Path, lines: str, why: str) -> None:
    path = write(tmp_path, lines)
    path.write_text(path.read_text().replace("replicas: 3\n", "") if "replicas" in lines else path.read_text())
    with pytest.raises(SettingsError, match=why):
        convert(Asked(path, "oci"))


def test_a_script_of_another_yaml_is_taken_back(tmp_path: Path) -> None:
    """What config.env has of one script is no part of another's launch."""
    said: list[str] = []
    shown: list[str] = []

    def run(runtime: str) -> list[str]:
        shown.clear()
        code = from_ads.run(Asked(write(tmp_path, runtime), "oci", merge=True), tmp_path, shown.append, said.append)
        return [str(code), *shlex.split(shown[-1] if shown else "")]

    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    assert "ARGS=" not in " ".join(run("command: torchrun a.py --epochs 3"))
    config = (tmp_path / "config.env").read_text()
    assert run("command: torchrun b.py")[:3] == ["0", "ENTRY_POINT=b.py", "ARGS=[]"]
    git = "git: {url: 'https://host/r.git', commit: d91085d}"
    launch = run(f"{git}\ncommand: torchrun b.py")
    assert launch[1:4] == ["ENTRY_POINT=b.py", "CODE_DIR=.", "ARGS=[]"]
    assert "CODE_URI=git+https://host/r.git@d91085d" in launch
    assert "config.env gets no CODE_URI, as it has another launch's" in " ".join(said)
    assert "CODE_URI" not in (tmp_path / "config.env").read_text()

    (tmp_path / "config.env").write_text(f"{config}\nCODE_URI=git+https://host/x.git@v1\n")
    assert run("command: torchrun b.py") == ["3"]
    assert "has CODE_URI of another launch, and job.yaml has none" in said[-1]
