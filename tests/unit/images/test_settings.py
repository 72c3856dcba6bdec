"""What can be chosen for images, and what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.images import settings
from oci_cluster.images.settings import default_tag, read_settings


def test_without_a_choice_an_image_is_for_this_machine(tmp_path: Path) -> None:
    """Its name is one that podman would give it, too; its platform is that of OCI's shapes."""
    chosen = read_settings({}, tmp_path)
    assert chosen.name("dask") == "localhost/oci-cluster/dask:dev"
    assert (chosen.engine, chosen.platform, chosen.registry) == ("docker", "linux/amd64", "")


def test_everything_that_cannot_be_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message names every bad setting with its value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    environ = {"REGISTRY": "https://x", "TAG": "a b", "EXTRA_ENV": "no.yaml ~nobody-here/x", "CODE_DIR": str(tmp_path)}
    with pytest.raises(SettingsError) as caught:
        read_settings({**environ, "BUILD_FLAGS": "'"}, tmp_path / "root")
    for part in (
        "REGISTRY: 'https://x'",
        "TAG: 'a b'",
        "no file no.yaml, ~nobody-here/x in",
        "and a build sees nothing else",
        "BUILD_FLAGS: No closing",
    ):
        assert part in str(caught.value)


def test_config_env_chooses_where_the_environment_does_not(tmp_path: Path) -> None:
    """make and launch.sh read the same file."""
    (tmp_path / "config.env").write_text("REGISTRY=r.example/team/\nTAG=two\n")
    assert read_settings({"TAG": "one"}, tmp_path).name("dask") == "r.example/team/dask:one"


@pytest.mark.parametrize(
    ("said", "tag"), [("v1.2-3-gabc-dirty", "v1.2-3-gabc-dirty"), ("", "dev"), ("feature/x", "dev")]
)
def test_the_tag_is_gits_description(said: str, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where git has none, or one that no tag can be, it is dev."""
    monkeypatch.setattr(settings, "_git", lambda *_: said)
    assert default_tag(tmp_path) == tag
