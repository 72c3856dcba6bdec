"""``from-ads.sh``: what it writes, prints and tells."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from unit.ads_migration.ads_yaml import write

from oci_cluster import __main__ as door
from oci_cluster.ads_migration import from_ads
from oci_cluster.ads_migration.from_ads import Asked
from oci_cluster.contract.settings.settings_files import read_settings_file
from oci_cluster.errors import NotPermittedError, SettingsError, UsageError
from oci_cluster.launcher import context


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "checkout").mkdir()
    return tmp_path / "checkout"


def run(root: Path, asked: Asked) -> tuple[int, str, str]:
    shown: list[str] = []
    said: list[str] = []
    code = from_ads.run(asked, root, shown.append, said.append)
    return code, "\n".join(shown), "\n".join(said)


def test_settings_are_written_and_the_command_printed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(root.parent, cluster="name: x\nimage: iad.ocir.io/n/dask:1", runtime="args: [\"it's\", 'a b']")
    code, out, said = run(root, Asked(path, "local"))
    assert (code, out) == (0, f"{root}/scripts/launch.sh dask 2 --name x")
    assert f"before the first launch, in {root}: make build-dask push-dask" in said
    assert read_settings_file(root / "config.env") == {
        "BACKEND": "local",
        "REGISTRY": "iad.ocir.io/n",
        "ENTRY_POINT": "train.py",
        "CODE_DIR": str(root.parent),
        "ARGS": '["it\'s", "a b"]',
    }
    monkeypatch.chdir(root)
    before = (root / "config.env").stat().st_mtime_ns
    again = run(root, Asked(path, "local"))
    assert again[1] == "./scripts/launch.sh dask 2 --name x"
    assert f"{root}/config.env is as it was" in again[2]
    assert (root / "config.env").stat().st_mtime_ns == before


def test_a_field_without_counterpart_has_a_code_of_its_own(root: Path) -> None:
    path = write(root.parent, cluster="readyTimeout: 1", worker="config: {env: [{name: A, value: 1}]}")
    code, out, said = run(root, Asked(path, "oci"))
    assert (code, out) == (3, f"{root}/scripts/launch.sh dask 2")
    assert "not a field of ADS's: train.yaml:16: spec.cluster.spec.readyTimeout: ADS does not read it either" in said
    assert "no counterpart: train.yaml:15: spec.cluster.spec.worker.config.env[0]: A: all nodes" in said
    assert "fields to look at before the launch: 2" in said
    assert (root / "config.env").is_file()


def test_a_second_yaml_prints_its_own_launch(root: Path) -> None:
    """What it has and config.env keeps as it was stands before the command: the environment wins."""
    run(root, Asked(write(root.parent, infrastructure="shapeName: VM.Standard.E4.Flex", runtime="args: [a]"), "oci"))
    second = write(root.parent, infrastructure="shapeName: VM.GPU2.1", runtime="args: ['b c']")
    _, out, said = run(root, Asked(second, "oci", merge=True))
    assert "config.env keeps its own SHAPE; the launch below has VM.GPU2.1, as train.yaml" in said
    launch = shlex.split(out.splitlines()[-1])
    assert {"SHAPE=VM.GPU2.1", 'ARGS=["b c"]'} == {word for word in launch if "=" in word}
    assert read_settings_file(root / "config.env")["SHAPE"] == "VM.Standard.E4.Flex"


def test_the_size_of_a_machine_goes_with_its_shape(root: Path) -> None:
    """A shape with a size of its own takes none; what is in config.env nothing takes back."""
    flexible = "shapeName: VM.Standard.E4.Flex\nshapeConfigDetails: {ocpus: 2, memoryInGBs: 16}"
    run(root, Asked(write(root.parent, infrastructure="shapeName: VM.GPU2.1"), "oci"))
    _, out, _ = run(root, Asked(write(root.parent, infrastructure=flexible), "oci", merge=True))
    assert out.startswith("SHAPE=VM.Standard.E4.Flex OCPUS=2 MEMORY_GBS=16 ")
    assert "OCPUS" not in read_settings_file(root / "config.env")
    run(root, Asked(write(root.parent, infrastructure=flexible), "oci", force=True))
    code, out, said = run(root, Asked(write(root.parent, infrastructure="shapeName: VM.GPU2.1"), "oci", merge=True))
    assert (code, out) == (3, "")
    assert "config.env has OCPUS, MEMORY_GBS of another launch, and train.yaml has none" in said


def test_limits_and_options_of_one_yaml_are_not_those_of_the_next(root: Path) -> None:
    """A cluster that may live an hour, or shrink to two ranks, says nothing of the launch after it."""
    limits = "config: {env: [{name: START_TIMEOUT, value: 1200}, {name: OCI__LIFE_SPAN, value: 1h}]}"
    run(root, Asked(write(root.parent, framework="horovod", cluster=limits), "oci"))
    assert read_settings_file(root / "config.env").items() >= {"TIMEOUT": "1200", "TTL": "1h"}.items()
    for framework in ("pytorch", "horovod"):
        code, out, said = run(root, Asked(write(root.parent, framework=framework), "oci", merge=True))
        assert (code, out.split(" ./")[0].split(f" {root}")[0]) == (0, "TIMEOUT=600 TTL=1d"), said

    before = (root / "config.env").read_text()
    elastic = "config: {env: [{name: HOROVOD_ARGS, value: --min-np 2}, {name: SYNC_SLEEP, value: 30}]}"
    _, out, said = run(root, Asked(write(root.parent, framework="horovod", cluster=elastic), "oci", merge=True))
    assert {"MIN_NP=2", "OUTPUT_INTERVAL=30"} <= {*shlex.split(out)}
    assert "config.env gets no MIN_NP, as it has another launch's; the launch below has 2, as train.yaml" in said
    assert (root / "config.env").read_text() == before

    run(root, Asked(write(root.parent, framework="horovod", cluster=elastic), "oci", force=True))
    assert "MIN_NP" not in run(root, Asked(write(root.parent), "oci", merge=True))[1]
    code, out, said = run(root, Asked(write(root.parent, framework="horovod"), "oci", merge=True))
    assert (code, out) == (3, "")
    assert "config.env has MIN_NP of another launch, and train.yaml has none" in said


def test_what_stands_in_the_yaml_moves_no_terminal(root: Path) -> None:
    clear = '"\\e[2J"'
    path = write(root.parent, cluster=f"name: {clear}\n{clear}: 1", runtime=f'args: ["/code/\\e[2J", {clear}]')
    _, out, said = run(root, Asked(path, "oci", dry_run=True))
    assert said.count("[2J") == 3
    assert "\x1b" not in out + said
    for lines in ({"framework": clear}, {"cluster": f"ps: {{replicas: {clear}}}"}):
        with pytest.raises(SettingsError) as caught:
            run(root, Asked(write(root.parent, **lines), "oci"))
        assert str(caught.value).isprintable()


def test_a_file_that_is_there_stays(root: Path) -> None:
    own = "# mine\nBACKEND=docker\nTTL=3d"
    config = root / "config.env"
    config.write_text(own)
    path = write(root.parent)
    shown: list[str] = []
    with pytest.raises(SettingsError, match=r"config\.env is there, and stays as it is; --merge .* --force"):
        from_ads.run(Asked(path, "oci"), root, print, shown.append)
    assert "-TTL=3d" in "\n".join(shown)
    assert config.read_text() == own

    _, out, said = run(root, Asked(path, "oci", merge=True, dry_run=True))
    assert out.startswith(f"{own}\n\n# Added from train.yaml by from-ads.sh")
    assert config.read_text() == own

    _, out, said = run(root, Asked(path, "oci", merge=True))
    assert "config.env keeps its own BACKEND; the launch below has oci, as train.yaml" in said
    assert out.startswith("BACKEND=oci ")
    assert "+ENTRY_POINT=train.py" in said
    assert read_settings_file(config).items() >= {"BACKEND": "docker", "TTL": "3d", "ENTRY_POINT": "train.py"}.items()
    merged = config.read_text()
    assert merged.startswith(own)
    run(root, Asked(path, "oci", merge=True))
    assert config.read_text() == merged

    _, out, _ = run(root, Asked(path, "oci", force=True))
    assert "BACKEND=" not in out.splitlines()[-1]
    assert read_settings_file(config)["BACKEND"] == "oci"
    assert "TTL" not in read_settings_file(config)


def test_a_dry_run_writes_nothing(root: Path) -> None:
    path = write(root.parent)
    code, out, _ = run(root, Asked(path, "oci", dry_run=True))
    assert code == 0
    assert "BACKEND=oci\n" in out
    assert "\n# TTL=1d\n" in out
    assert shlex.split(out.splitlines()[-1])[1:] == ["dask", "2"]
    assert list(root.iterdir()) == []


def test_what_cannot_be_written_or_read_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(root.parent)
    with pytest.raises(UsageError, match=r"--output .*nowhere is not a folder"):
        run(root, Asked(path, "oci", output=root / "nowhere"))
    (root / "config.env").mkdir()
    with pytest.raises(SettingsError, match=r"config\.env cannot be read"):
        run(root, Asked(path, "oci"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (root / "config.env").rmdir()
    monkeypatch.setattr("oci_cluster.ads_migration.from_ads.write_whole", full)
    with pytest.raises(NotPermittedError, match=r"config\.env cannot be written: No space left on device"):
        run(root, Asked(path, "oci"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\n", "line 1, kind: expected kind: distributed, of ads opctl run, or kind: job, got ''"),
        ("apiVersion: 1\nkind: other\n", "line 2, kind: expected kind: distributed, of ads opctl run, or kind: job"),
        ("apiVersion: 1\nkind: job\n", "other.yaml has no spec; give the YAML of job.to_yaml()"),
        ("kind: job\nspec: {name: a}\n", "line 2, spec: a job of ADS's has runtime"),
        ("kind: distributed\n", "has no spec.cluster"),
        ("kind: distributed\nspec: {cluster: {kind: dask}}\n", "line 2, spec.cluster: a cluster of ADS's has kind"),
    ],
)
def test_another_yaml_is_refused(root: Path, text: str, why: str) -> None:
    path = root / "other.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        run(root, Asked(path, "oci"))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "expected one file, the YAML of ads opctl run; got 0 of them"),
        ([""], "got 0 of them"),
        (["a", "b"], "got 2 of them"),
        (["a", "--merge", "--force"], "one of --merge, which keeps what config.env has, and --force"),
        (["a", "--backend", "cloud"], "unknown backend 'cloud'"),
        (["a", "--apply"], "unknown option '--apply'"),
    ],
)
def test_a_wrong_command_line_reads_nothing(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context, "use_own_environment", lambda: pytest.fail("nothing is installed"))
    assert door.main(["from-ads", *words]) == 2
    assert why in capsys.readouterr().err


def test_the_door_opens_it(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(context, "use_own_environment", lambda: None)
    path = write(root.parent)
    words = ["--code", str(root.parent), "--output", str(root), "--backend", "local", "--merge"]
    assert door.main(["from-ads", str(path), *words]) == 0
    assert capsys.readouterr().out == f"{root}/scripts/launch.sh dask 2\n"
    assert read_settings_file(root / "config.env")["BACKEND"] == "local"
