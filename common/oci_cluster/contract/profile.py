"""What is said of a profiler that is not there: by a node, and by a launch that can see it."""

from __future__ import annotations


def no_profiler(program: str) -> str:
    """Return why ``PROFILE_CMD`` cannot be run."""
    advice = f"--with {program} adds it; in an image, EXTRA_ENV or SYSTEM_PACKAGES of make build"
    return f"PROFILE_CMD: there is no program '{program}': {advice}"
