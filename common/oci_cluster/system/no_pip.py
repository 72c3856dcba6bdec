"""Stands in for pip in the environments of nodes: this file is their module ``pip``, and says how packages are added.

Without it ``!pip install x`` takes the next pip on ``PATH``, which is that of the user's own Python.
"""

from __future__ import annotations

import importlib.metadata
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_BAD_SETTINGS = 78
_PROGRAM = "#!{python}\nimport sys\n\nfrom pip import main\n\nsys.exit(main())\n"


def main(words: Sequence[str] | None = None) -> int:
    """List the packages for ``list`` and ``freeze``; for all else say what adds packages, and return 78."""
    command, *named = [word for word in (sys.argv[1:] if words is None else words) if not word.startswith("-")] or [""]
    if command in {"list", "freeze"}:
        found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
        sys.stdout.write("".join(f"{name}=={version}\n" for name, version in sorted(found.items())))
        return 0
    names = named if command == "install" and named else ["PACKAGE"]
    if ".venv" in Path(sys.prefix).parts:
        advice = f"packages are added at the launch: {' '.join(f'--with {shlex.quote(name)}' for name in names)}"
    else:
        advice = f"packages are added when the image is built: list {' '.join(names)} in the file of EXTRA_ENV"
    sys.stderr.write(f"pip: error: all launches share this environment; {advice}\n")
    return _BAD_SETTINGS


def put_into(directory: Path) -> None:
    """Put it into the environment *directory*, as a module and as programs, unless that has a pip."""
    for packages in directory.glob("lib/python*/site-packages"):
        if (packages / "pip").exists():
            return
        (packages / "pip").mkdir()
        shutil.copyfile(__file__, packages / "pip" / "__init__.py")
        (packages / "pip" / "__main__.py").write_text("from pip import main\n\nraise SystemExit(main())\n")
    for name in ("pip", "pip3"):
        program = directory / "bin" / name
        program.write_text(_PROGRAM.format(python=directory / "bin" / "python"))
        program.chmod(0o755)
