"""What a script has seen, as a line that the ladder reads."""

import json
import os


def tell(name, **seen):
    """Print one line. In one write: ranks share what they print to."""
    rank = int(os.environ.get("RANK", "0"))
    print("RESULT " + json.dumps({"name": name, "rank": rank, **seen}) + "\n", end="", flush=True)
