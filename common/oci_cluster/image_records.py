"""What ``make build`` has made: one record for each framework, in the checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(framework: str, root: Path) -> dict[str, Any] | None:
    """Return what was built last for *framework* in the checkout *root*, None where nothing is known to have been.

    It holds ``image``, ``id`` (``sha256:...``) and ``digest``, empty before it is pushed.
    """
    try:
        record = json.loads((root / ".images" / f"{framework}.json").read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("id"), str) else None
