"""One table of settings: what people read, and what the package reads, is what stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from oci_cluster.backends.base import ONE_MACHINE_DEFAULTS
from oci_cluster.contract.settings.config import SettingsReader, read_settings_file
from oci_cluster.contract.settings.node import checked, min_workers_of, read_settings
from oci_cluster.contract.settings.schema import (
    DECIDED,
    FLAG_ONLY,
    FLAGS,
    PASSED_ON,
    SETTINGS,
    Receiver,
    Setting,
)

ROOT = Path(__file__).resolve().parents[4]
# Who reads what agents do.
NODES = {Receiver.AS_GIVEN, Receiver.RESOLVED, Receiver.DECIDED, Receiver.PLACED}
# A folder of code is chosen for images and for launches; the engine builds images and runs nodes.
SHARED_WITH_IMAGES = {"CODE_DIR", "DOCKER"}
# What config.env.example does not show: backends or frameworks decide it, or it is other programs' own.
NOT_FOR_CONFIG = {
    *(
        "CLIENT_TOKEN",
        "CLUSTER_NAME",
        "CLUSTER_NODES_METADATA_FILE",
        "ENTRY_ON",
        "FIND_INTERFACE",
        "GANG",
        "KUBECONFIG",
    ),
    *(
        "JOB_COMPLETION_INDEX",
        "MIN_NODES",
        "NODE_GROUP",
        "OCI_CLI_CONFIG_FILE",
        "TERMINATION_LOG",
        "WAIT_FOR_ADDRESSES",
    ),
}


def image_settings() -> set[str]:
    return {name for name, row in SETTINGS.items() if row.receiver is Receiver.IMAGES} | SHARED_WITH_IMAGES


def table_rows(path: str, heading: str) -> dict[str, list[str]]:
    """Return the cells of the first table after *heading* in *path*, by the first name in each row."""
    text = (ROOT / path).read_text(encoding="utf-8").partition(heading)[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[0].splitlines()[2:]]
    found = {cells[0].split("`")[1]: cells for cells in rows}
    assert len(found) == len(rows)
    return found


def is_default(cell: str, row: Setting) -> bool:
    """Return whether a table of people's tells the default of *row*; words stand for one that is computed."""
    if row.default:
        return cell.removesuffix(" (none)") == f"`{row.default}`"
    return not cell.startswith("required") if row.default == "" else cell != ""


# --- What people read -----------------------------------------------------------------------------------------------


def test_the_contract_tells_people_of_every_setting_of_a_node() -> None:
    """common/README.md has the table's names, second names and defaults, a meaning each, and no others."""
    rows = table_rows("common/README.md", "## What a node is given")
    assert set(rows) == {name for name, row in SETTINGS.items() if row.receiver in NODES}
    for name, (names, default, meaning) in rows.items():
        row = SETTINGS[name]
        assert re.findall("`(.+?)`", names) == [
            name,
            *(alias for alias in row.aliases if not alias.startswith("OCI__")),
        ]
        assert is_default(default, row), name
        assert meaning


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("images", "## What can be chosen", image_settings() - {"CODE_DIR"}),
        ("oci-reference", "## All settings", {name for name, row in SETTINGS.items() if "oci" in row.backend_defaults}),
        (
            "oci-reference",
            "## Settings of setup.sh",
            {name for name, row in SETTINGS.items() if row.receiver is Receiver.TENANCY},
        ),
    ],
)
def test_a_page_tells_people_of_every_setting_of_its_own(page: str, heading: str, names: set[str]) -> None:
    """docs/images.md, docs/oci-reference.md: the table's names, defaults, and a meaning each."""
    rows = table_rows(f"docs/{page}.md", heading)
    assert set(rows) - {"CODE_DIR"} == names
    for name in names:
        row = SETTINGS[name]
        default = row.backend_defaults.get(page.partition("-")[0], row.default or "")
        assert is_default(rows[name][1], replace(row, default=default)), name
        assert rows[name][2]


def test_the_makefile_hands_on_what_images_are_made_of() -> None:
    """A line of config.mk that sets one reaches the build."""
    chosen = re.search(r"^chosen := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert chosen
    assert set(chosen[1].split()) == image_settings()


def test_the_example_of_a_configuration_shows_what_can_be_configured(tmp_path: Path) -> None:
    """config.env.example: each name once, with its default or the table's example; uncommented, it can be read."""
    text = (ROOT / "config.env.example").read_text(encoding="utf-8")
    lines = re.findall(r"^# ([A-Z_]+=(?:'.*'|\S*))$", text, re.MULTILINE)
    (tmp_path / "config.env").write_text("\n".join(lines))
    shown = read_settings_file(tmp_path / "config.env")
    assert len(shown) == len(lines)
    names = set(SETTINGS) - DECIDED - NOT_FOR_CONFIG
    assert shown == {name: SETTINGS[name].example or SETTINGS[name].default for name in names}
    told = re.findall(r"^# .*Defaults? on local and docker: (.+)\.\n((?:# [A-Z_]+=.*\n)+)", text, re.MULTILINE)
    blocks = [re.findall(r"[A-Z_]+(?==)", block) for _, block in told]
    values = [re.findall(r"[\d.]*\d", numbers) for numbers, _ in told]
    pairs = {
        name: value for these, own in zip(blocks, values, strict=True) for name, value in zip(these, own, strict=True)
    }
    assert pairs == ONE_MACHINE_DEFAULTS


@pytest.mark.parametrize("backend", ["docker", "kubernetes", "local", "oci"])
def test_a_backends_settings_have_the_tables_defaults(backend: str) -> None:
    """scripts/backends/<name>.env: the launcher reads it, and people do."""
    declared = read_settings_file(ROOT / "scripts" / "backends" / f"{backend}.env")
    table = {name: row.backend_defaults[backend] for name, row in SETTINGS.items() if backend in row.backend_defaults}
    assert declared == table


def test_launch_sh_has_every_flag_that_the_table_names() -> None:
    """A message that names a flag must name one that there is."""
    text = (ROOT / "scripts" / "launch.sh").read_text(encoding="utf-8")
    assert [flag for flag in FLAGS.values() if not re.search(rf"^#   {flag}\b", text, re.MULTILINE)] == [
        "-- ARGUMENT..."
    ]


# --- What the package reads -----------------------------------------------------------------------------------------


class Spied(Mapping[str, str]):
    """An environment that notes which of its variables are looked at."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values_ = values
        self.looked_at: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.looked_at.add(name)
        return self.values_.get(name, default)

    def __getitem__(self, name: str) -> str:
        self.looked_at.add(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a node looks at what it knows by name")

    def __len__(self) -> int:
        return len(self.values_)


def test_a_node_reads_exactly_the_settings_of_nodes() -> None:
    """Every row that says so is read, under all of its names, and nothing else of the environment is."""
    least = {
        "MODE": "WORKER",
        "NODE_RANK": "1",
        "WORKER_COUNT": "3",
        "FRAMEWORK": "pytorch",
        "WORK_DIR": "file:///data/work",
        "CLUSTER_ID": "c1",
        "LAUNCH_ID": "1f2e3d4c",
        "ENTRY_POINT": "train.py",
    }
    environ = Spied({name: text for name, text in least.items() if name != "MODE"} | {"OCI__MODE": "WORKER"})
    read_settings(environ, ROOT)
    rows = [row for row in SETTINGS.values() if row.receiver in NODES]
    first = {row.name for row in rows}
    aliases = {alias for row in rows for alias in row.aliases if row.name not in least or row.name == "MODE"}
    assert environ.looked_at == first | aliases


def test_the_package_reads_no_setting_that_is_not_in_the_table() -> None:
    """Who adds a setting adds a row, and so a line for people."""
    read = re.compile(r'\b(?:read|given|backend_read)\.(?:text|value|setting)\(\s*"(\w+)"')
    files = (ROOT / "common" / "oci_cluster").rglob("*.py")
    found = {name for path in files for name in read.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 40, "what is looked for is still how settings are read"
    assert found - set(SETTINGS) == set()


@pytest.mark.parametrize("row", SETTINGS.values(), ids=SETTINGS)
def test_every_row_is_sound(row: Setting) -> None:
    """Defaults and examples are what the row's own parser takes; nobody's flag is --env's too."""
    for text in filter(None, [row.default, row.example, *row.backend_defaults.values()]):
        row.parse(text)
    assert row.flag or not row.is_flag_only
    others = {name for other in SETTINGS.values() if other is not row for name in (other.name, *other.aliases)}
    assert not others & {row.name, *row.aliases}


# --- What the launcher takes out of it ------------------------------------------------------------------------------


def test_what_a_launch_hands_on_is_in_an_order_that_lasts() -> None:
    """cluster.json and dry runs show it: a new row comes where it belongs, and no old one moves."""
    assert [row.name for row in PASSED_ON] == [
        "INTERRUPTIBLE",
        "MAX_RESTARTS",
        "ADAPT",
        "ENTRY_ON",
        "GANG",
        "FIND_INTERFACE",
        "NAMED_ARGS",
        "PROFILE_CMD",
        "PROFILE_NODES",
        "OUTPUT_DIR",
        "OUTPUT_FOLDERS",
        "OUTPUT_INTERVAL",
        "TIMEOUT",
        "TTL",
        "IDLE_LIMIT",
        "GRACE_PERIOD",
        "HEARTBEAT_INTERVAL",
        "HEARTBEAT_TIMEOUT",
        "SILENCE_TIMEOUT",
        "POLL_CEILING",
        "MAX_LOG_BYTES",
        "EXPOSE",
        "WAIT_FOR_ADDRESSES",
        "CLUSTER_TLS",
        "CLIENT_TOKEN",
        "VAULT_SECRETS",
    ]


def test_what_env_may_not_give() -> None:
    """Who a node is, is decided; what has a flag of its own is given by that."""
    assert {
        "SESSION_VERIFIER",
        "MODE",
        "NODE_RANK",
        "WORKER_COUNT",
        "LAUNCH_ID",
        "LAUNCH_KEY",
        "CLUSTER_ID",
        "FRAMEWORK",
        "NODE_ADDRESS",
        "NODE_NAME",
        "OWN_NETWORK",
        "START_BY",
        "FOLLOWED",
        "LAUNCHER_VERSION",
        "SESSION",
    } == DECIDED
    assert {name: FLAGS[name] for name in FLAG_ONLY} == {
        "ENTRY_POINT": "--entry",
        "ENTRY_MODULE": "--module",
        "CODE_DIR": "--code",
        "CLUSTER_NAME": "--name",
        "ARGS": "-- ARGUMENT...",
    }
    assert {name: FLAGS[name] for name in set(FLAGS) - FLAG_ONLY} == {
        "TTL": "--ttl",
        "PS_COUNT": "--ps",
        "OUTPUT_FOLDERS": "--outputs",
        "EPHEMERAL": "--keep",
        "BACKEND": "--backend",
        "QUEUE": "--queue",
        "PRIORITY": "--priority",
        "WAIT_FOR_QUOTA": "--wait-for-quota",
    }


def test_checked_settings_are_handed_on_as_they_were_given() -> None:
    """The text, under the first name, where it parses; else a complaint, one for each."""
    read = SettingsReader({"TIME_OUT": "2m", "TTL": "", "GANG": "maybe", "GRACE_PERIOD": "-1"}, {"POLL_CEILING": "3"})
    given = checked(read, PASSED_ON)
    assert {name: given[name] for name in ("TIMEOUT", "POLL_CEILING")} == {"TIMEOUT": "2m", "POLL_CEILING": "3"}
    assert "TTL" not in given
    assert [problem.partition(":")[0] for problem in read.problems] == ["GANG", "GRACE_PERIOD"]


@pytest.mark.parametrize(
    ("sources", "count"),
    [
        ([{}, {}], 5),
        ([{"MIN_NODES": "3"}, {"MIN_WORKERS": "1"}], 2),  # typed: the framework's own does not win over it
        ([{}, {"MIN_NODES": "3"}], 2),
        ([{"MIN_WORKERS": "4"}, {"MIN_NODES": "2"}], 4),
        ([{"MIN_WORKERS": "0", "MIN_NODES": "4"}], 0),
    ],
)
def test_the_first_source_that_names_the_least_decides(sources: list[dict[str, str]], count: int) -> None:
    """MIN_NODES is translated here, for launcher and node alike."""
    read = SettingsReader(*sources)
    assert (min_workers_of(read, 5), read.problems) == (count, [])


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"MIN_WORKERS": "x"}, "MIN_WORKERS: 'x' is not a whole number from 0 to 1000000"),
        ({"MIN_NODES": "0"}, "MIN_NODES: '0' is not a whole number from 1 to 1000000"),
    ],
)
def test_a_least_that_is_no_number_is_noted(source: dict[str, str], problem: str) -> None:
    """As every other bad setting."""
    read = SettingsReader(source)
    min_workers_of(read, 5)
    assert read.problems == [problem]
