"""A stub of nvidia-smi, which lists the GPUs that a test wants."""

from __future__ import annotations

from pathlib import Path


def uuid(index: int) -> str:
    """Return the UUID of the GPU with that *index*."""
    return f"GPU-{index}a5c0000-1111-2222-3333-444455556666"


def listing(count: int, model: str = "NVIDIA H100 80GB HBM3") -> str:
    """Return what ``nvidia-smi -L`` prints of so many GPUs."""
    return "".join(f"GPU {index}: {model} (UUID: {uuid(index)})\n" for index in range(count))


def stub_nvidia_smi(directory: Path, text: str, then: str = "") -> None:
    """Put a nvidia-smi into *directory* that notes each call in ``asked``, prints *text*, and does *then*."""
    directory.mkdir(exist_ok=True)
    (directory / "text").write_text(text)
    program = directory / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >>"{directory}/asked"\ncat "{directory}/text"\n{then}\n')
    program.chmod(0o755)
