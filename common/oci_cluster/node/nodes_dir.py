"""What start scripts can read about the other nodes: one small file for each, in a directory of this node."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oci_cluster.contract.names import config_file
from oci_cluster.errors import SettingsError
from oci_cluster.system.files import write_whole
from oci_cluster.system.text import printable

# Enough for addresses, ports and keys, too few to flood a log or a start script.
MAX_FACTS = 32
_FACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def parse_facts(text: str) -> dict[str, str]:
    """Return the ``name=value`` lines of *text*, each name and value fit for a terminal; other lines are left out."""
    facts = {}
    for line in text.splitlines()[:MAX_FACTS]:
        name, equals, value = line.partition("=")
        if equals:
            facts[printable(name)] = printable(value)
    return facts


def checked_address(config: Mapping[str, Any], node: str) -> str:
    """Return the address in *node*'s configuration."""
    text = str(config.get("address"))
    try:
        if "%" in text:  # the scope of an IPv6 address: any text at all, and of no meaning on another node
            msg = f"{text!r} has a scope"
            raise ValueError(msg)
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        msg = f"{config_file(node)} holds no usable address: {error}"
        raise SettingsError(msg) from error


class NodesDir:
    """The directory ``NODES_DIR``: a file for each node that is present, ``name=value`` lines."""

    def __init__(self, path: Path) -> None:
        """Keep the files in *path*, which is made with the first of them."""
        self.path = path

    def put(self, node: str, config: Mapping[str, Any]) -> str:
        """Write what *config* says of *node*, whole; return its address."""
        address = checked_address(config, node)
        facts = config.get("facts")
        lines = [f"rank={int(node.rpartition('_')[2]) if '_' in node else 0}", f"address={address}"]
        for name, value in list(facts.items())[:MAX_FACTS] if isinstance(facts, dict) else ():
            if _FACT_NAME.fullmatch(str(name)):
                lines.append(f"fact_{name}={printable(value)}")
        self.path.mkdir(mode=0o700, exist_ok=True)
        write_whole(self.path / node, "\n".join(lines) + "\n")
        return address

    def remove(self, node: str) -> None:
        """Remove *node*'s file; one that is not there is as good as removed."""
        (self.path / node).unlink(missing_ok=True)
