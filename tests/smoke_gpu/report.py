"""What a ladder has found, as a page that can be pasted: a table in Markdown, and the facts of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OK, RED, NOT_HERE, NOT_RUN = "ok", "RED", "not here", "not run"
_LONGEST = 300


@dataclass(frozen=True)
class Result:
    """What became of one rung; *says* is the sentence of docs/gpu.md that it tries."""

    name: str
    result: str
    seconds: float
    seen: str
    says: str


def page(results: Sequence[Result], facts: Mapping[str, str]) -> str:
    """Return the report: the machine first, then each rung, then what docs/gpu.md has wrong."""
    counts = {kind: sum(one.result == kind for one in results) for kind in (OK, RED, NOT_HERE, NOT_RUN)}
    lines = ["| fact | |", "| --- | --- |"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    lines += ["", "| rung | result | seconds | what was seen |", "| --- | --- | --- | --- |"]
    lines += [f"| {one.name} | {one.result} | {one.seconds:.1f} | {_cell(one.seen)} |" for one in results]
    lines += ["", f"{', '.join(f'{count} {kind}' for kind, count in counts.items())}."]
    for kind, word in ((OK, "right"), (RED, "wrong")):
        said = dict.fromkeys(one.says for one in results if one.result == kind and one.says)
        lines += ["", f"docs/gpu.md is {word} here in:", "", *(f"- {text}" for text in said)] if said else []
    return "\n".join(lines) + "\n"


def exit_code(results: Sequence[Result]) -> int:
    """Return 1 where a rung is red, else 0."""
    return int(any(one.result == RED for one in results))


def _cell(text: str) -> str:
    # What programs print is no markup, and no lines of their own.
    return " ".join(text.split()).replace("|", "\\|")[:_LONGEST]
