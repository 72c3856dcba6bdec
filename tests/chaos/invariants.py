"""What must hold after every schedule, whatever went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.schedules import Schedule

_OWN_BUG = 70
_NOT_STARTED = 69
_LOST = 76
_REFUSED = 2
STAYS = "it stays in the engine; try again: "
"""What a launcher says that could not bring what a cluster leaves: its own code is 69 then, and stop.sh tries again."""
_STARTED = " started: "
"""What a launcher says when its cluster has begun."""
_REFUSALS = {0, 2, 69, 76, 143}
"""Codes with which a verb of somebody else may end: done, refused, not to be reached, gone meanwhile, told to stop."""


@dataclass
class Seen:
    """What is seen of a schedule that is over."""

    launch_code: int | None
    """What launch.sh ended with; None: it did not end in time."""
    said: str
    """What it has said on stderr, and the runner in its log."""
    truth: dict[str, int | None]
    """By node: what its last entry point ended with by itself; None where it was ended, or never began."""
    cluster: dict[str, object] | None
    """What list.sh shows of it; None: nothing."""
    left: list[str]
    """Processes and files that are still there."""
    verbs: list[tuple[list[str], int | None, str]] = field(default_factory=list)
    afterwards: list[str] = field(default_factory=list)
    """What did not hold of a launch of the same name, afterwards."""


def broken(schedule: Schedule, seen: Seen) -> list[str]:
    """Return what does not hold, a sentence each."""
    found = [*(f"left behind: {left}" for left in seen.left), *seen.afterwards]
    if seen.launch_code is None:
        found.append("launch.sh did not end")
    if "Traceback" in seen.said:
        found.append("a traceback was shown")
    found += [
        f"{' '.join(words)} ended with {code}: {said[-300:]}"
        for words, code, said in seen.verbs
        if code not in _REFUSALS or "Traceback" in said
    ]
    others = [code for words, code, _ in seen.verbs if words[0] == "launch"]
    has_begun = _STARTED in seen.said
    if seen.launch_code != 0 and not has_begun and any(code != _REFUSED for code in others):
        return found  # of two launches of one name the other began its cluster, and that is shown
    final = seen.cluster and seen.cluster.get("exit_code")
    if seen.cluster is None:
        has_run = seen.launch_code in {0, schedule.code}  # else nothing was started, and that was told
        return [*found, "there is no cluster to be seen"] if has_run else found
    if not isinstance(final, int):
        return [*found, f"the cluster is shown as {seen.cluster.get('state')}, without a code"]
    return found + _broken_codes(schedule, seen, final)


def _broken_codes(schedule: Schedule, seen: Seen, final: int) -> list[str]:
    found = []
    own = seen.truth.get("MAIN")
    if final == 0 and own != 0:
        found.append(f"a false success: the cluster ended with 0, main's entry point with {own}")
    takes_launcher = any(fault.may_take_the_launcher for fault in schedule.faults)
    # A work dir that is away while nodes are started: that was told, and shows as a cluster without them afterwards.
    never_began = seen.launch_code == _NOT_STARTED and own is None and any(f.kind == "away" for f in schedule.faults)
    # So does one whose launcher was killed after it had written its plan.
    never_began |= takes_launcher and own is None and seen.cluster is not None and seen.cluster.get("nodes") == []
    if final != own and final not in schedule.excuses and not (never_began and final == _LOST):
        found.append(f"the cluster ended with {final}, main's entry point with {own}; nothing explains it")
    if final == _OWN_BUG:
        found.append("the cluster ended with 70, which is a fault of this project")
    was_told = seen.launch_code == _NOT_STARTED and final == 0 and STAYS in seen.said
    # What the backend recorded is gone after launch.sh has told it: then nobody knows, and that is said, too.
    is_forgotten = final == _LOST and any(fault.target == "nodes.json" for fault in schedule.faults)
    is_explained = takes_launcher or never_began or was_told or is_forgotten
    if seen.launch_code is not None and seen.launch_code != final and not is_explained:
        found.append(f"launch.sh ended with {seen.launch_code}, the cluster with {final}")
    if seen.launch_code == 0 and own != 0:
        found.append(f"a false success: launch.sh ended with 0, main's entry point with {own}")
    return found
