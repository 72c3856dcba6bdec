"""One table of settings: what people read, and what the package reads, is what stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from settings_pages import IMAGES, NODES, PageError, written

from oci_cluster.contract.settings.node import checked, min_workers_of, read_settings
from oci_cluster.contract.settings.schema import (
    DECIDED,
    FLAG_ONLY,
    FLAGS,
    PASSED_ON,
    SETTINGS,
)
from oci_cluster.contract.settings.settings_files import SettingsReader, read_settings_file

ROOT = Path(__file__).resolve().parents[4]


# --- What people read -----------------------------------------------------------------------------------------------


def test_pages_have_the_tables_names_defaults_and_examples(tmp_path: Path) -> None:
    """`make settings` has been run; uncommented, the example of a configuration can be read."""
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, "run: make settings"
    lines = re.findall(
        r"^# ([A-Z_]+=(?:'.*'|\S*))$", (ROOT / "config.env.example").read_text(encoding="utf-8"), re.MULTILINE
    )
    (tmp_path / "config.env").write_text("\n".join(lines))
    assert len(read_settings_file(tmp_path / "config.env")) == len(lines) > 100


@pytest.mark.parametrize(
    ("page", "line", "instead", "problem"),
    [
        ("common/README.md", "| `MODE` |", "| `MODUS` |", "says nothing of MODE; has what is no setting of it: MODUS"),
        ("common/README.md", "| `10` | between TERM and KILL |", "| `10` | |", "does not say what GRACE_PERIOD means"),
        ("config.env.example", "# TTL=", "# TTL=0\n# TTL=", "names twice TTL"),
        ("scripts/backends/docker.env", "SHM_SIZE=", "SHM=", "says nothing of SHM_SIZE; has what"),
    ],
)
def test_somebody_has_to_say_what_a_setting_means(
    tmp_path: Path, page: str, line: str, instead: str, problem: str
) -> None:
    """A page that lacks a setting, its meaning, or has one too many, is not written."""
    for path in written():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        copy.write_text(text.replace(line, instead) if path == ROOT / page else text)
    with pytest.raises(PageError, match=re.escape(problem)):
        written(tmp_path)


def test_the_makefile_hands_on_what_images_are_made_of() -> None:
    """A line of config.mk that sets one reaches the build."""
    chosen = re.search(r"^chosen := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert chosen
    assert set(chosen[1].split()) == IMAGES


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


def test_every_row_is_sound() -> None:
    """Defaults and examples are what the row's own parser takes; nobody's flag is --env's too; each name is of one."""
    for row in SETTINGS.values():
        for text in filter(None, [row.default, row.example, *row.backend_defaults.values()]):
            row.parse(text)
        assert row.flag or not row.is_flag_only, row
    names = [name for row in SETTINGS.values() for name in (row.name, *row.aliases)]
    assert sorted(names) == sorted(set(names))


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
