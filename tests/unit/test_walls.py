"""Who may import whom, read from the syntax trees: what is imported inside functions counts too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oci_cluster

PACKAGE = Path(oci_cluster.__file__).parent

# Rooms that each room may import from; its own modules too, except for backends. `__main__` may import all.
ROOMS = {
    "errors": (),
    "system": ("errors",),
    "contract": ("errors", "system"),
    "node": ("errors", "system", "contract"),
    "images": ("errors", "system", "contract"),
    "backends": ("errors", "system", "contract"),
    "project": ("errors", "system", "contract"),
    "launcher": ("errors", "system", "contract"),
    "api": ("errors", "system", "contract", "launcher"),
    "ads_migration": ("errors", "system", "contract"),
}
# Single modules, or names in them, that a room may import besides.
BESIDES = {
    "backends": ("images.records",),
    "launcher": (
        *("backends.base", "backends.findings", "backends.open_backend", "backends.known_backends"),
        *("backends.check_of", "backends.with_placeholder"),
    ),
    "api": (
        *("backends.base", "backends.open_backend", "backends.known_backends"),
        *("project.unpack.unpack", "project.wheel.vendored"),
    ),
}
# What several backends need.
SHARED = (
    *("backends.base", "backends.code", "backends.findings", "backends.archive", "backends.stored_logs"),
    "backends.agentless_image",
)
# A build's cache depends on these alone.
INSTALL = ("errors", "system.console", "system.envs.package_lists", "system.envs.installer", "system.envs.no_pip")


def imports(source: str, module: str) -> Iterator[str]:
    """Yield what *module*, a dotted name in the package, imports of the package: ``backends.base.Backend``."""
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Import):
            found = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            start = statement.module or ""
            if statement.level:  # from . import x
                parents = ["oci_cluster", *module.split(".")][: -statement.level]
                start = ".".join([*parents, *([start] if start else [])])
            found = [f"{start}.{alias.name}" for alias in statement.names]
        else:
            continue
        yield from (name.removeprefix("oci_cluster.") for name in found if name.startswith("oci_cluster."))


def is_in(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}.")


def offences(source: str, module: str) -> list[str]:
    """Return a line for each import of *module* that a rule forbids."""
    room, _, rest = module.partition(".")
    if room == "__main__":
        return []
    allowed = [*ROOMS[room], *BESIDES.get(room, ())]
    rule = f"{room} may import {', '.join(allowed) or 'nothing of ours'}"
    if room == "backends":
        own = f"backends.{rest.split('.')[0]}"
        allowed += [*SHARED, own] if "." in rest else [*SHARED]
        rule += f", {', '.join(SHARED)} and its own backend"
    else:
        allowed.append(room)
        rule += " and itself"
    if module == "images.install":
        allowed, rule = [*INSTALL], f"images.install may import {', '.join(INSTALL)}"
    return [
        f"{module} imports {name}: {rule}"
        for name in imports(source, module)
        if name != "__version__" and not any(is_in(name, place) for place in allowed)
    ]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_no_module_imports_what_it_must_not() -> None:
    """All offences at once, each with module, import and rule."""
    assert [line for path in MODULES for line in offences(path.read_text(), module_name(path))] == []


def test_every_room_has_a_rule() -> None:
    """A new folder or module at the top needs a line here first."""
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert rooms == {*ROOMS, "__main__"}


# What start scripts run, in the user's own Python, may take from the package: what needs the standard library alone.
STARTED = (
    *("contract.settings.settings_files", "contract.first_cause", "contract.parsers", "errors"),
    *("system.files", "system.gpus", "system.listeners", "system.process"),
)


def test_launchers_of_frameworks_import_what_needs_nothing_else() -> None:
    """Their Python is the user's, without the packages of the agent's."""
    root = PACKAGE.parents[1]
    paths = [*root.glob("*/launch/*.py"), *root.glob("*/launcher/*.py")]
    found = {name for path in paths for name in imports(path.read_text(), path.stem)}
    assert {name.rpartition(".")[0] for name in found} == {*STARTED}
    # -S: without any package that is installed.
    names = [f"oci_cluster.{name}" for name in STARTED]
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import {', '.join(names)}"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


FORBIDDEN = [
    ("system.files", "from oci_cluster.contract.names import STOP"),
    ("system.files", "import oci_cluster.node.agent"),
    ("contract.cluster", "from oci_cluster.launcher import planning"),
    ("contract.cluster", "from oci_cluster.backends import open_backend"),
    ("node.agent", "from oci_cluster.launcher.launch.plan import Request"),
    ("node.agent", "from oci_cluster.backends.base import Backend"),
    ("node.agent", "from oci_cluster.images.records import read_record"),
    ("node.agent", "def f():\n    from oci_cluster.launcher import cli\n"),
    ("node.agent", "if TYPE_CHECKING:\n    from oci_cluster.launcher import cli\n"),
    ("backends.local.backend", "from oci_cluster.backends.oci.service import Service"),
    ("backends.local.backend", "from oci_cluster.backends import oci"),
    ("backends.local.backend", "from ..oci import service"),
    ("backends.local.backend", "from ...launcher import lifecycle"),
    ("backends.local.backend", "from oci_cluster.launcher.lifecycle import Lifecycle"),
    ("backends.local.runner", "from oci_cluster.node.agent import run_agent"),
    ("backends.docker.backend", "from oci_cluster.images.build import run"),
    ("backends.base", "from oci_cluster.backends.local.backend import LocalBackend"),
    ("backends", "from oci_cluster.backends.local import backend"),
    ("launcher.verbs", "from oci_cluster.backends.local.backend import LocalBackend"),
    ("launcher.verbs", "from oci_cluster.backends import oci"),
    ("launcher.verbs", "from oci_cluster.node import agent"),
    ("images.build", "from oci_cluster.launcher import cli"),
    ("images.install", "from oci_cluster.system.engine import Engine"),
    ("images.install", "from oci_cluster.images import records"),
    ("project.update", "from oci_cluster.launcher import command_line"),
    ("launcher.verbs", "from oci_cluster.project import updating"),
    ("errors", "from oci_cluster.system import text"),
    ("launcher.verbs", "from oci_cluster.api.cluster import Cluster"),
    ("node.agent", "from oci_cluster.api.cluster import Cluster"),
    ("api.place", "from oci_cluster.backends.oci.service import Service"),
    ("api.cluster", "from oci_cluster.node.agent import run_agent"),
    ("ads_migration.from_ads", "from oci_cluster.launcher.launch.plan import make_plan"),
]


@pytest.mark.parametrize(("module", "source"), FORBIDDEN, ids=[f"{module}: {line}" for module, line in FORBIDDEN])
def test_an_offence_is_caught_and_named(module: str, source: str) -> None:
    """The line names module, import and rule."""
    (line,) = offences(source, module)
    assert line.startswith(f"{module} imports ")
    assert " may import " in line


ALLOWED = [
    ("system.files", "from oci_cluster.errors import BackendError\nimport os, json"),
    ("contract.cluster", "from oci_cluster.system.text import now"),
    ("backends.local.backend", "from oci_cluster.backends.local import records"),
    ("backends.local.backend", "from . import records"),
    ("backends.docker.backend", "from oci_cluster.images.records import read_record"),
    ("launcher.verbs", "from oci_cluster.backends import known_backends, open_backend"),
    ("launcher.lifecycle", "from oci_cluster.launcher.launch.plan import free_ranks"),
    ("__main__", "from oci_cluster.node.agent import run_agent"),
    ("api.background", "from oci_cluster.launcher.follow.follower import Follower"),
]


@pytest.mark.parametrize(("module", "source"), ALLOWED, ids=[f"{module}: {line}" for module, line in ALLOWED])
def test_what_is_right_is_no_offence(module: str, source: str) -> None:
    """Else the rules would forbid the product."""
    assert offences(source, module) == []
