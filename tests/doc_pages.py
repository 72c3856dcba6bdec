"""The project's pages: their text, headings, links and blocks of code, for tests that hold them to what is there."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *``` *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


def files() -> list[Path]:
    """Return every file that git knows or could add."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def pages() -> dict[str, str]:
    """Return the text of every page, by its name from the root; not those of users' own projects, made of templates."""
    templates = ROOT / "scripts" / "templates"
    found = [path for path in files() if path.suffix == ".md" and not path.is_relative_to(templates)]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def prose(text: str) -> str:
    """Return *text* without its blocks of code."""
    return FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Return where the links and pictures of *text* lead."""
    return LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """Return the anchors of *text*'s headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found
