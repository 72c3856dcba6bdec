"""`config.ini`: what ADS's `build-image` was told last, in the folder in which it was run."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from pathlib import Path

_NAME = "config.ini"
_MOST_BYTES = 20_000


@dataclass(frozen=True)
class BuildChoices:
    """What it says; empty, where it does not."""

    registry: str = ""
    """The image without its tag, which `image: "@image"` stands for."""
    source_folder: str = ""
    """The folder of the code, relative to that of the file."""


def build_choices(folder: Path) -> BuildChoices:
    """Return what `config.ini` in *folder* says; nothing where it is none of ADS's, or there is none."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        with (folder / _NAME).open(encoding="utf-8") as file:
            parser.read_string(file.read(_MOST_BYTES))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return BuildChoices()
    found = {name: value.strip() for section in parser.values() for name, value in section.items() if value}
    return BuildChoices(found.get("registry", ""), found.get("source_folder", ""))
