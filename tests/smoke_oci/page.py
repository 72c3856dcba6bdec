"""The page that a ladder writes: each guess, what was seen, and what that makes of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from smoke_oci.guesses import GUESSES, RUNG_TEXTS, UNKNOWN, WRONG, Findings

_LONGEST = 400


def page(findings: Findings, rungs: tuple[str, ...], settings: Mapping[str, Any], now: float) -> str:
    """Return the page: what is wrong first."""
    found = {guess: findings.of(guess, rungs) for guess in GUESSES}
    order = (WRONG, UNKNOWN)
    ranked = sorted(
        found.items(), key=lambda entry: order.index(entry[1].verdict) if entry[1].verdict in order else len(order)
    )
    counts = {verdict: sum(entry.verdict == verdict for entry in found.values()) for verdict in dict.fromkeys(
        entry.verdict for _, entry in ranked)}  # fmt: skip
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    lines = [
        "# Guesses about OCI, and what a tenancy says",
        "",
        f"{when}, up to: {RUNG_TEXTS[rungs[-1]]}; shape {settings['shape']}, image {settings['image']}.",
        f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}.",
        "",
        "| guess | | result | what was seen | opc-request-id |",
        "| --- | --- | --- | --- | --- |",
    ]
    for guess, entry in ranked:
        cells = (f"`{guess}`", GUESSES[guess].text, entry.verdict, entry.evidence, entry.request_id)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    # A service's words are no markup, and no lines of their own.
    return " ".join(text.split()).replace("|", "\\|")[:_LONGEST]
