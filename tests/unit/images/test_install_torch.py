"""The environment of an image with PyTorch: which build of torch it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.images.image import Image, wheel

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.images import install as image_environment
from oci_cluster.images.install import main


def test_torch_is_the_build_that_was_named(image: Image) -> None:
    """TORCH=cpu: no other, also where the places that pip is told of have another."""
    wheel(image.wheels, "torch", "2.13.0")
    wheel(image.wheels, "torch", "2.13.0+cpu")
    wheel(image.wheels, "torch", "2.13.0+xpu")
    image.install(image.file("torch==2.13.0"), torch="cpu")
    assert "torch==2.13.0+cpu" in image.packages


def test_without_the_build_that_was_named_nothing_is_installed(image: Image) -> None:
    """Not the other one, of gigabytes."""
    wheel(image.wheels, "torch", "2.13.0")
    with pytest.raises(SettingsError, match=r"torch==2\.13\.0\+cpu"):
        image.install(image.file("torch==2.13.0"), torch="cpu")


@pytest.mark.parametrize(("listed", "is_asked"), [("torch==2.13.0", True), ("torchvision", True), ("one", False)])
def test_pytorchs_index_is_asked_where_something_of_pytorch_is_listed(
    image: Image, monkeypatch: pytest.MonkeyPatch, listed: str, *, is_asked: bool
) -> None:
    """Beside the user's places."""
    monkeypatch.setattr(image_environment, "pip_settings", lambda _: {"find-links": str(image.wheels)})
    called: list[str] = []
    environs: list[dict[str, str]] = []

    def run(command: list[str | Path], _: object, environ: dict[str, str] | None = None, *__: object) -> None:
        called.append(" ".join(map(str, command)))
        environs.append(environ or {})
        if " install " in called[-1]:
            raise BackendError("enough is known")

    monkeypatch.setattr(image_environment, "run_installer", run)
    with pytest.raises(BackendError, match="enough is known"):
        image.install(image.file(listed), torch="cpu")
    assert (environs[-1].get("UV_INDEX") == "https://download.pytorch.org/whl/cpu") is is_asked
    assert environs[-1]["UV_FIND_LINKS"] == str(image.wheels)


def test_the_build_tells_the_program(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable, which the Dockerfile's argument is; conda's pip gets the same list."""
    asked: list[object] = []
    monkeypatch.setattr(image_environment, "install", lambda *_, **more: asked.append(more))
    monkeypatch.setenv("INSTALL_CACHE", str(image.place))
    monkeypatch.setenv("TORCH", "cpu")
    assert main([str(image.directory), str(image.file("one"))]) == 0
    assert asked == [{"torch": "cpu"}]
