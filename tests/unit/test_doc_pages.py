"""What pages say in numbers and names, held to the code that decides it."""

from __future__ import annotations

import re
from pathlib import Path

from doc_pages import ROOT

from oci_cluster.backends.oci.security_rules import ALL_TCP, node_ports
from oci_cluster.backends.oci.setup import framework_words
from oci_cluster.contract.config import framework_defaults


def section(page: str, heading: str) -> str:
    """Return what stands below *heading*, a whole line, up to the next heading of any level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition(f"\n{heading}\n")[2].partition("\n#")[0]


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below *heading*."""
    table = re.search(r"(?:^\|.*\n)+", section(page, heading), re.MULTILINE)
    assert table, heading
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[0].splitlines()[2:]]


def ports_of(folder: Path) -> tuple[str, str]:
    """Return names and numbers of the ports that nodes need of each other, as the page writes them."""
    names = framework_words(folder, "NODE_PORTS")
    given = framework_defaults(folder)
    found = node_ports({**given, "NODE_PORTS": ",".join(names)})
    if found == [ALL_TCP]:
        return "", "all"
    return " ".join(names), ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def test_rules_between_nodes_are_those_that_setup_makes() -> None:
    """docs/network.md: every framework, with the ports of its settings.env."""
    told = {
        name: re.fullmatch(r"(?:`(?P<names>.*)`: )?(?P<ports>.*)", cell)
        for names, cell in rows("docs/network.md", "## Rules between nodes")
        for name in names.lower().split(", ")
    }
    folders = {path.parent.name: path.parent for path in ROOT.glob("*/start-master.sh")}
    assert {name: (found["names"] or "", found["ports"]) for name, found in told.items() if found} == {
        name: ports_of(folder) for name, folder in folders.items()
    }
