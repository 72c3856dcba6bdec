"""The tables of settings in the guides of the frameworks, held to what is declared and read there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import framework_defaults

ROOT = Path(__file__).resolve().parents[3]
FRAMEWORKS = sorted(path.parent for path in ROOT.glob("*/settings.env"))


def told(folder: Path) -> dict[str, str]:
    """Return the settings in the table under "Settings", with their defaults; empty: it has none, or a sentence."""
    part = (folder / "README.md").read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for line in part.splitlines():
        if line.startswith("| `"):
            names, values = (" ".join(re.findall("`(.+?)`", cell)).split() for cell in line.split("|")[1:3])
            found |= dict(zip(names, values if len(values) == len(names) else [""] * len(names), strict=True))
    return found


def is_a_persons(name: str) -> bool:
    """Return whether people set the setting *name*: some that a framework declares say what it is itself."""
    return name not in SETTINGS or f"\n# {name}=" in (ROOT / "config.env.example").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FRAMEWORKS, ids=[folder.name for folder in FRAMEWORKS])
def test_a_guide_tells_people_of_every_setting_of_its_framework(folder: Path) -> None:
    """Each that settings.env declares, with its default there."""
    declared, shown = framework_defaults(folder), told(folder)
    assert {name for name in declared if is_a_persons(name)} - set(shown) == set()
    both = {name: value for name, value in shown.items() if value and declared.get(name)}
    assert both == {name: declared[name] for name in both}
    assert len(both) > 3


@pytest.mark.parametrize("folder", FRAMEWORKS, ids=[folder.name for folder in FRAMEWORKS])
def test_a_guide_tells_people_of_no_setting_that_nothing_reads(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.suffix in {".sh", ".py", ".env"}]
    read = set(re.findall(r"\b[A-Z_]{3,}\b", "\n".join(path.read_text(encoding="utf-8") for path in files)))
    assert set(told(folder)) - read - set(SETTINGS) == set()
