"""Shares of this machine's GPUs: ranks of two nodes must not have the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oci_cluster.contract.cluster import Node, Plan
from oci_cluster.contract.settings.settings_files import SettingsReader, framework_defaults, framework_words
from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.gpus import VISIBLE, gpus_here, is_instance

SETTING = "GPUS_PER_NODE"
# In the plan's ``placed``: what each node sees, by its place among the nodes that get a share, with ; between.
_SHARES = "gpus"
# The key of a framework's settings.env that names the setting for the ranks of a node.
_RANKS = "RANKS_PER_NODE"
_ON_CPUS = f"train on CPUs with {SETTING}=0"


def share_out(plan: Plan, folder: Path, environ: Mapping[str, str], say: Say) -> Plan:
    """Return *plan* with each node's GPUs; unchanged without GPUs, or where all see all.

    CUDA_VISIBLE_DEVICES of *environ*, the launcher's own, counts. A SettingsError where the GPUs do not suffice for the
    nodes of the framework in *folder*, or for the ranks of a node.
    """
    wanted = SettingsReader(plan.settings).setting(SETTING)
    if wanted == "all" or VISIBLE in plan.environment:  # the user shares them out
        return plan
    if wanted == 0:
        return _placed(plan, [])
    try:
        found = gpus_here(environ)
    except TimeoutError as error:
        if wanted != "auto":
            raise SettingsError(f"{SETTING}={wanted}: {error}; {_ON_CPUS}") from error
        say(f"{error}; nodes see no GPU, as all that asks the driver would hang")
        return _placed(plan, [])
    if wanted == "auto" and not found:
        return plan
    names, trains = [node.name for node in plan.nodes if node.role != "PS"], _trains_on_all(plan, folder)
    each = (len(found) // len(names) or 1) if wanted == "auto" else wanted
    if wanted == "auto" and trains and is_instance(found[0]):
        each = 1
    if each * (len(names) if trains else 1) > len(found):
        raise SettingsError(_too_few(each, len(names), len(found), environ, folder))
    if trains:
        _check_ranks(plan, folder, each, len(found))
    return _placed(plan, _shares([gpu.id for gpu in found], each, names, say, main_first=trains))


def _shares(ids: Sequence[str], each: int, names: Sequence[str], say: Say, *, main_first: bool) -> list[str]:
    """Return the GPUs of each of *names*, then those for nodes that join."""
    shares = [",".join(ids[at : at + each]) for at in range(0, len(ids) - each + 1, each)]
    without: Sequence[str] = []
    if not main_first:  # main hands out work: it gets what workers leave
        shares += [""] * (len(names) - len(shares))
        shares.insert(0, shares.pop(len(names) - 1))
        without = [name for name, share in zip(names, shares, strict=False) if not share]
    left = ids[each * len(names) :]
    if without or left:
        what = f"none for {', '.join(without)}" if without else f"left over: {','.join(left)}"
        say(f"{SETTING}: {each} of {len(ids)} GPUs for each node; {what}")
    return shares


def share_of(plan: Plan, node: Node) -> dict[str, str]:
    """Return the variable that shows *node* its GPUs alone: later ones get the rest."""
    if _SHARES not in plan.placed:
        return {}
    shares, servers = plan.placed[_SHARES].split(";"), sum(other.role == "PS" for other in plan.nodes)
    place = node.rank - servers if node.rank >= len(plan.nodes) else node.rank  # the ranks of servers come in between
    return {VISIBLE: shares[place] if place < len(shares) and node.role != "PS" else ""}


def check_left(plan: Plan, folder: Path, nodes: Sequence[Node]) -> None:
    """Raise SettingsError where all nodes train and no GPU is left for *nodes*."""
    if not plan.placed.get(_SHARES) or not _trains_on_all(plan, folder):
        return
    for node in nodes:
        if not share_of(plan, node)[VISIBLE]:
            shares = plan.placed[_SHARES].split(";")
            raise SettingsError(
                f"{node.name}: there is no GPU left, those of this launch suffice for {len(shares)} nodes; "
                f"launch anew with another {SETTING}"
            )


def _placed(plan: Plan, shares: Sequence[str]) -> Plan:
    return replace(plan, placed={**plan.placed, _SHARES: ";".join(shares)})


def _trains_on_all(plan: Plan, folder: Path) -> bool:
    """Return whether each node needs a GPU, for the entry point or ranks."""
    read = SettingsReader(plan.environment, framework_defaults(folder))
    runs_on_all = read.setting("GANG") or read.setting("ENTRY_ON") or framework_words(folder, _RANKS)
    return bool(runs_on_all) and not plan.environment.get("SESSION")


def _too_few(each: int, nodes: int, total: int, environ: Mapping[str, str], folder: Path) -> str:
    there = f"{VISIBLE}={environ[VISIBLE]} shows {total}" if VISIBLE in environ else f"this machine has {total}"
    ranks = "".join(f", where {name}=auto is a rank for each GPU" for name in framework_words(folder, _RANKS))
    return (
        f"{SETTING}: this launch takes {each * nodes} GPUs (nodes: {nodes}, each with {each}), and {there}; "
        f"one node has all GPUs: launch with workers 0 and {SETTING}=auto{ranks}, or {_ON_CPUS}"
    )


def _check_ranks(plan: Plan, folder: Path, each: int, total: int) -> None:
    for name in framework_words(folder, _RANKS):
        ranks = SettingsReader(plan.environment, framework_defaults(folder)).text(name)
        if ranks.isdecimal() and int(ranks) > each:
            raise SettingsError(
                f"{name}: {ranks} ranks on each node are more than its GPUs, {each} of {total}; set {name}={each}, "
                f"{_ON_CPUS}, or have ranks share GPUs with {SETTING}=all, which gloo can and NCCL refuses"
            )
