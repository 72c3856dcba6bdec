"""Lives of a launch: a queue may interrupt a cluster and start it again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import LIFE, READY, STOP, config_file, exit_file
from oci_cluster.contract.parsers import parse_switch

_ID = re.compile(r"[0-9a-f]{32}")
# Far above what any queue does; a number that a person can still read.
_MAX_NUMBER = 1_000_000_000


@dataclass(frozen=True)
class Life:
    """One life of a launch."""

    id: str
    """Random: whoever knows it has heard of this life since it began."""
    number: int
    """For people: 1 for the first."""
    answers: Mapping[str, Any]
    """The counters of the arrivals that main has read, by name."""
    tells_arrivals: bool = True
    """Whether the file has them: where it is told by a line of main's log, it has not."""


def read_life(cluster_dir: ClusterDir) -> Life | None:
    """Return the life that main has begun last, if *cluster_dir* has one.

    Who has written that file is certain, and not when: an earlier one may have been put back.
    """
    fields = cluster_dir.read(LIFE, any_life=True) or {}
    life, number, answers = fields.get("life"), fields.get("number"), fields.get("answers")
    is_one = type(life) is str and _ID.fullmatch(life) and type(number) is int and 0 < number < _MAX_NUMBER
    if not is_one:
        return None
    return Life(str(life), int(str(number)), answers if isinstance(answers, dict) else {}, isinstance(answers, dict))


def is_interruptible(environment: Mapping[str, str]) -> bool:
    """Return whether a launch whose nodes have this *environment* can have several lives."""
    return parse_switch(environment.get("INTERRUPTIBLE") or "0")


def read_stop(cluster_dir: ClusterDir) -> dict[str, Any] | None:
    """Return the ``stop`` file's fields, if it ends the launch or *cluster_dir*'s life.

    A ``stop`` without a life ends the launch; main's own carries main's life. A reader that has no life yet: if main
    ended normally, the launch is over. If main was interrupted, the next life is to begin.
    """
    stop = cluster_dir.read(STOP, any_life=True)
    if stop is None or not stop.get("life") or stop.get("life") == cluster_dir.life:
        return stop
    if cluster_dir.life:
        return None
    # The life before the current one decides nothing, even where its main ends only now.
    current, ended = read_life(cluster_dir), cluster_dir.read(exit_file("MAIN"), any_life=True)
    if current is None or ended is None or not current.id == ended.get("life") == stop.get("life"):
        return None
    return None if ended.get("interrupted") is True else stop


def has_main_reported(cluster_dir: ClusterDir) -> bool:
    """Return whether main's agent has run: it has published something in some life."""
    names = cluster_dir.listing()
    mains = (config_file("MAIN"), READY, exit_file("MAIN"))
    return any(name in names and cluster_dir.read(name, any_life=True) is not None for name in mains)
