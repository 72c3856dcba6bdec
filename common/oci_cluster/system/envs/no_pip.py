"""The module ``pip`` of nodes' environments: says how packages are added.

Without it ``!pip install x`` takes the next pip on ``PATH``, which is that of the user's own Python.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_BAD_SETTINGS = 78
# The shell's and Python's at once: a path in the first line of a program may have no blank.
_PROGRAM = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys

from pip import main

sys.exit(main())
"""


def main(words: Sequence[str] | None = None) -> int:
    """List packages for ``list`` and ``freeze``; refuse all else with advice."""
    given = sys.argv[1:] if words is None else words
    command, *named = [word for word in given if not word.startswith("-")] or [""]
    if command in {"list", "freeze"}:
        import importlib.metadata  # noqa: PLC0415 - takes a tenth of the CPU of a dry run, which reads this module, too

        found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
        sys.stdout.write("".join(f"{name}=={version}\n" for name, version in sorted(found.items())))
        return 0
    names = named if named and command == "install" else ["PACKAGE"]
    if not {".venv", ".venv-clusters"}.isdisjoint(Path(sys.prefix).parts):
        advice = f"packages are added at the launch: {' '.join(f'--with {shlex.quote(name)}' for name in names)}"
    else:
        advice = f"packages are added when the image is built: list {' '.join(names)} in the file of EXTRA_ENV"
    sys.stderr.write(f"pip: error: all launches share this environment; {advice}\n")
    return _BAD_SETTINGS


def put_into(directory: Path) -> None:
    """Put this module and its programs into an environment, unless that has pip."""
    for packages in directory.glob("lib/python*/site-packages"):
        if (packages / "pip").exists():
            return
        (packages / "pip").mkdir()
        shutil.copyfile(__file__, packages / "pip" / "__init__.py")
        (packages / "pip" / "__main__.py").write_text("from pip import main\n\nraise SystemExit(main())\n")
    for name in ("pip", "pip3"):
        program = directory / "bin" / name
        program.write_text(_PROGRAM.format(python=shlex.quote(str(directory / "bin" / "python"))))
        program.chmod(0o755)
