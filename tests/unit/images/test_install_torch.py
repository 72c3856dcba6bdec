"""The environment of an image with PyTorch: which build of torch it has."""

from __future__ import annotations

import pytest
from unit.images.image import Image, wheel

from oci_cluster.errors import BackendError
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
    with pytest.raises(BackendError, match=r"torch==2\.13\.0\+cpu"):
        image.install(image.file("torch==2.13.0"), torch="cpu")


def test_the_build_tells_the_program(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable, which the Dockerfile's argument is; conda's pip gets the same list."""
    asked: list[object] = []
    monkeypatch.setattr(image_environment, "install", lambda *_, **more: asked.append(more))
    monkeypatch.setenv("INSTALL_CACHE", str(image.place))
    monkeypatch.setenv("TORCH", "cpu")
    assert main([str(image.directory), str(image.file("one"))]) == 0
    assert asked == [{"torch": "cpu"}]
