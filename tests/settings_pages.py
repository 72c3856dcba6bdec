"""Writes the names, defaults and examples of settings into the pages that say what they mean: `make settings`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from oci_cluster.contract.parsers import parse_duration
from oci_cluster.contract.settings.schema import DECIDED, ONE_MACHINE_DEFAULTS, SETTINGS, Receiver

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("docker", "kubernetes", "local", "oci")
# Agents read what these have.
NODES = {Receiver.AS_GIVEN, Receiver.RESOLVED, Receiver.DECIDED, Receiver.PLACED}
# A folder of code is chosen for images and for launches; the engine builds images and runs nodes.
IMAGES = {name for name, row in SETTINGS.items() if row.receiver is Receiver.IMAGES} | {"CODE_DIR", "DOCKER"}
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
    *("JOB_COMPLETION_INDEX", "MIN_NODES", "NODE_GROUP", "OCI_CLI_CONFIG_FILE", "TERMINATION_LOG"),
    "WAIT_FOR_ADDRESSES",
}


class PageError(Exception):
    """A page that lacks a setting, or has one that there is not."""


def written(root: Path = ROOT) -> dict[Path, str]:
    """Return the text that each page has to have; raise where somebody has to say what a setting means."""
    found = {path: _with_values(path, _defaults(path.stem)) for path in _backend_files(root)}
    example = root / "config.env.example"
    shown = {name: row.example or row.default or "" for name, row in SETTINGS.items()}
    text = _with_values(example, {name: shown[name] for name in set(SETTINGS) - DECIDED - NOT_FOR_CONFIG})
    found[example] = re.sub(r"(efaults? on local and docker: ).+\.\n((?:# [A-Z_]+=.*\n)+)", _one_machine, text)
    contract, reference, images = root / "common/README.md", root / "docs/oci-reference.md", root / "docs/images.md"
    usual = {name: row.default or "" for name, row in SETTINGS.items()}
    by_receiver = {kind: [name for name, row in SETTINGS.items() if row.receiver is kind] for kind in Receiver}
    nodes = {name: usual[name] for kind in NODES for name in by_receiver[kind]}
    found[contract], meanings = _with_table(contract.read_text(), "## What a node is given", nodes, has_aliases=True)
    text, _ = _with_table(reference.read_text(), "## All settings", _defaults("oci"), meanings)
    tenancy = {name: usual[name] for name in by_receiver[Receiver.TENANCY]}
    found[reference], _ = _with_table(text, "## Settings of setup.sh", tenancy)
    chosen = {name: usual[name] for name in IMAGES}
    found[images], _ = _with_table(images.read_text(), "## What can be chosen", chosen)
    return found


def _backend_files(root: Path) -> list[Path]:
    return [root / "scripts" / "backends" / f"{backend}.env" for backend in BACKENDS]


def _defaults(backend: str) -> dict[str, str]:
    return {name: row.backend_defaults[backend] for name, row in SETTINGS.items() if backend in row.backend_defaults}


def _check(where: object, there: Collection[str], wanted: Collection[str]) -> None:
    wrong = {"says nothing of": set(wanted) - set(there), "has what is no setting of it:": set(there) - set(wanted)}
    wrong["names twice"] = {name for name in there if list(there).count(name) > 1}
    if said := [f"{what} {', '.join(sorted(names))}" for what, names in wrong.items() if names]:
        raise PageError(f"{where} {'; '.join(said)}")


def _with_values(path: Path, values: Mapping[str, str]) -> str:
    """Return the text of *path* with the value of each line ``NAME=`` or ``# NAME=``."""
    line = re.compile(r"^((?:# )?([A-Z_]+)=)('.*'|\S*)$", re.MULTILINE)
    text = path.read_text(encoding="utf-8")
    _check(path.name, [name for _, name, _ in line.findall(text)], values)
    return line.sub(lambda found: found[1] + (f"'{value}'" if " " in (value := values[found[2]]) else value), text)


def _one_machine(found: re.Match[str]) -> str:
    names = re.findall(r"[A-Z_]+(?==)", found[2])
    return f"{found[1]}{' and '.join(ONE_MACHINE_DEFAULTS[name] for name in names)}.\n{found[2]}"


def _with_table(
    text: str,
    heading: str,
    defaults: Mapping[str, str],
    meanings: Mapping[str, str] | None = None,
    *,
    has_aliases: bool = False,
) -> tuple[str, dict[str, str]]:
    """Return *text* with names and *defaults* in the first table after *heading*, and what it says of each.

    The last column stays, but for what another table says already: *meanings*.
    """
    before, start, after = text.partition(heading)
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    if not table:
        raise PageError(f"no table after {heading}")
    head, rule, *lines = table[0].splitlines()
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"), maxsplit=2)] for line in lines]
    _check(heading, names := [row[0].split("`")[1] for row in rows], defaults)
    said = {name: row[2] for name, row in zip(names, rows, strict=True)} | {
        name: told for name, told in (meanings or {}).items() if name in names
    }
    if silent := [name for name, meaning in said.items() if not meaning]:
        raise PageError(f"{heading} does not say what {', '.join(silent)} means")
    lines = []
    for name, (_, told, _) in zip(names, rows, strict=True):
        aliases = [one for one in SETTINGS[name].aliases if has_aliases and not one.startswith("OCI__")]
        cells = (" / ".join(f"`{one}`" for one in (name, *aliases)), _default(name, defaults[name], told), said[name])
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return before + start + after.replace(table[0], "\n".join([head, rule, *lines, ""])), said


def _default(name: str, default: str, told: str) -> str:
    """Return what a table shows as the default; *told* stays where that is in words, as of one that is computed."""
    row = SETTINGS[name]
    if default:
        return f"`{default}`" + (" (none)" if default == "0" and row.parse is parse_duration else "")
    if row.default is None:
        return told or "required"
    is_old = told.startswith("required") or (re.fullmatch("`[^`<]*`", told) and told.strip("`") not in SETTINGS)
    return "" if is_old else told


def main() -> None:
    """Write the pages anew."""
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
