"""Every launch that a page shows is one that the launcher takes: it plans each, with ``--dry-run``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from doc_pages import FENCE, ROOT, pages
from harness import Project

# What config.env has where a page speaks of these.
PLACES = {
    "oci": {
        "COMPARTMENT_OCID": "ocid1.compartment.oc1..a",
        "PROJECT_OCID": "ocid1.datascienceproject.oc1.iad.a",
        "SUBNET_OCID": "ocid1.subnet.oc1.iad.a",
        "WORK_DIR": "oci://clusters@namespace/team-a/work",
        "IMAGE": "iad.ocir.io/namespace/training/{framework}:1",
    },
    "kubernetes": {
        "KUBE_CONTEXT": "team",
        "NAMESPACE": "team-a",
        "IMAGE": "iad.ocir.io/namespace/training/{framework}:1",
    },
}
# On which backend a page's commands run that name none.
OF_PAGE = {"docs/oci.md": "oci", "docs/oci-reference.md": "oci", "docs/kubernetes.md": "kubernetes"}
MINE = "print('hello')\n"


def launches() -> list[tuple[str, str]]:
    """Return all launches in the blocks of users' pages, each with the backend on which it runs.

    Without those in containers, of which even a dry run asks the engine: test_images.py has such; and without those of
    the page that adds a framework, which test_doc_framework.py runs.
    """
    found: dict[tuple[str, str], None] = {}
    for name, text in pages().items():
        if name.startswith("tests/"):
            continue
        lines = [line for block in FENCE.finditer(text) if block[2] == "sh" for line in block[3].splitlines()]
        shown = [
            line.partition(" > ")[0] for line in lines if re.match(r"(?:[A-Z_]+=\S+ )*\./scripts/launch\.sh ", line)
        ]
        for line in shown:
            named = re.match(r"BACKEND=(\w+) ", line)
            backend = named[1] if named else OF_PAGE.get(name, "local")
            if " jax " not in line and backend != "docker":
                found[backend, line.partition("  ")[0]] = None
    return list(found)


@pytest.mark.parametrize(("backend", "line"), launches())
def test_a_launch_of_the_pages_is_planned(project: Project, tmp_path: Path, backend: str, line: str) -> None:
    """With its options, its settings, and files of the names that it has; nothing is started."""
    home = tmp_path / "home"
    for path in (project.code / "train.py", home / "project" / "my.py"):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(MINE)
    words = [word.replace("~", str(home)) for word in shlex.split(line, comments=True)]
    at = words.index("./scripts/launch.sh")
    given = dict(word.split("=", 1) for word in words[:at])
    environ = {**PLACES.get(backend, {}), "BACKEND": backend, **given}
    own = words.index("--") if "--" in words else len(words)
    launch = project.launch(*words[at + 1 : own], "--dry-run", *words[own:], **environ)
    assert launch.wait() == 0, launch.err
    assert launch.out.strip()
    assert not project.cluster_dirs()


def test_there_are_launches_on_every_backend_and_of_every_framework() -> None:
    """Else the pages have changed so that this file does not find them."""
    found = " ".join(f"{backend} {line}" for backend, line in launches())
    frameworks = [path.parent.name for path in ROOT.glob("*/start-master.sh")]
    assert [word for word in (*frameworks, *PLACES) if not re.search(rf"\b{word}\b", found)] == []
