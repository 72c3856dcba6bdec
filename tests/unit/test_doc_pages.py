"""What pages say in numbers and names, held to the code that decides it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import launch_picture
from cluster_life import PICTURE, drawing
from doc_pages import ROOT

from oci_cluster.backends.oci import errors
from oci_cluster.backends.oci.tenancy.requirements import needed_of, placed, statements
from oci_cluster.backends.oci.tenancy.security_rules import ALL_TCP, ports_of
from oci_cluster.contract.cluster import State
from oci_cluster.contract.settings.settings_files import framework_words


def section(page: str, heading: str) -> str:
    """Return what stands below *heading*, a whole line, up to the next heading of any level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition(f"\n{heading}\n")[2].partition("\n#")[0]


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below *heading*."""
    table = re.search(r"(?:^\|.*\n)+", section(page, heading), re.MULTILINE)
    assert table, heading
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[0].splitlines()[2:]]


def told_ports(folder: Path) -> tuple[str, str]:
    """Return names and numbers of the ports that nodes need of each other, as the page writes them."""
    names = framework_words(folder, "NODE_PORTS")
    found = ports_of(folder.parent, folder.name, {})
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
        name: told_ports(folder) for name, folder in folders.items()
    }


def test_the_picture_of_a_clusters_life_has_the_words_of_the_package() -> None:
    """docs/images/cluster-life.svg is what tests/cluster_life.py draws of them; that file says how to draw it anew."""
    assert PICTURE.read_text(encoding="utf-8") == drawing()


def test_the_picture_of_a_launch_is_as_it_is_drawn() -> None:
    """docs/images/launch.svg is what tests/launch_picture.py draws."""
    assert launch_picture.PICTURE.read_text(encoding="utf-8") == launch_picture.drawing()


def test_every_file_and_state_of_the_picture_is_one_of_the_contract() -> None:
    """As common/README.md has the files, and status.sh the states."""
    contract = (ROOT / "common" / "README.md").read_text(encoding="utf-8")
    texts = re.findall(r'<text [^>]*class="(\w+)">(.*?)</text>', drawing())
    words = {word.replace("WORKER_1", "<node>") for kind, word in texts if kind == "word"}
    assert len(words) > 6
    assert {
        word for word in words if f"`{word}`" not in contract and word.replace("MAIN", "<node>") not in contract
    } == set()
    assert [State(word) for kind, word in texts if kind == "state"]


def test_each_statement_of_a_policy_has_its_row() -> None:
    """docs/policies.md: what stands in a policy, whom it is of, and what does not work without it."""
    wanted = needed_of(
        {
            "COMPARTMENT_OCID": "ocid1.compartment.oc1..a",
            "WORK_DIR": "oci://b@n/team/work",
            "REGISTRY": "iad.ocir.io/n/t",
            "VAULT_SECRETS": "A=ocid1.vaultsecret.oc1.iad.a",
        },
        ("dask",),
        "us-ashburn-1",
    )
    wanted = placed(wanted, project="ocid1.compartment.oc1..p")
    found = [(re.split(r" to | in ", one.text)[1], one.of, one.why) for one in statements(wanted)]
    told = rows("docs/policies.md", "## What each statement is for")
    assert [(statement.strip("`"), of, why) for statement, of, why, _ in told] == found


def test_what_each_command_asks_for_is_what_refusals_name() -> None:
    """docs/policies.md names those permissions that a message asks for, too."""
    messages = inspect.getsource(errors)
    for _, asked in rows("docs/policies.md", "## Narrower: what each command asks for"):
        permissions = re.findall(r"`([a-z]+ [a-z-]+)`", asked)
        assert permissions
        assert [one for one in permissions if one not in messages] == []


def test_agents_are_told_of_every_script_as_it_is_called() -> None:
    """docs/agents.md has the lines `Usage:` of all scripts that people run."""
    told = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8").partition("\n## Every script\n")[2]
    used = {
        line
        for path in (ROOT / "scripts").glob("*.sh")
        if path.name not in {"dev-setup.sh", "completion.sh"}
        for header in re.findall(
            r"^# Usage: ((?:.*\n)(?:#        .*\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        for line in header.replace("#        ", "").splitlines()
    }
    assert {line for line in told.splitlines() if ".sh" in line} == used


def test_files_that_maintainers_are_sent_to_are_there() -> None:
    """Those of the tables of CONTRIBUTING.md and docs/internals.md: in the package, or in the checkout."""
    package = ROOT / "common" / "oci_cluster"
    for page in ("CONTRIBUTING.md", "docs/internals.md"):
        cells = re.findall(r"^\|.*$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        named = {name for cell in cells for name in re.findall(r"`(\w+/[\w./]+)`", cell) if "<" not in name}
        assert len(named) > 20
        assert [name for name in sorted(named) if not (package / name).exists() and not (ROOT / name).exists()] == []
