"""For how long a node has said nothing, by heartbeats that are read some time after they were written."""

from __future__ import annotations

from typing import Any

import pytest

from oci_cluster.contract.files.liveness import Liveness


class Writer:
    """A node that writes heartbeats, on a clock of its own."""

    def __init__(self, clock_s: float = 1_700_000_000.0) -> None:
        self.ahead_s = clock_s
        self._beat = 0
        self._counter = 0

    def beats(self, moment: float) -> dict[str, Any]:
        """Return the heartbeat that it writes at *moment*."""
        self._beat += 1
        self._counter = max(int((moment + self.ahead_s) * 1e9), self._counter + 1)
        return {"beat": self._beat, "counter": self._counter}

    def reads(self, counter: int) -> None:
        """Have it read a file of another writer."""
        self._counter = max(self._counter, counter)


def observed(silence: Liveness, written: list[float], read: list[float], writer: Writer | None = None) -> list[float]:
    """Have heartbeats of these moments read at those; return what each reading tells of the node's silence."""
    writer = writer or Writer()
    beats = [(moment, writer.beats(moment)) for moment in written]
    told = []
    for moment in read:
        latest = next((beat for at, beat in reversed(beats) if at <= moment), None)
        told.append(round(silence.observe(latest, moment, answered=True), 3))
    return told


def test_a_node_is_silent_since_its_last_heartbeat_was_written() -> None:
    """Not since it was read: who reads every 15 s does not judge 15 s later. The first one counts from its reading."""
    assert observed(Liveness(0), [1, 16, 31], [1, 20, 45, 90]) == [0, 4, 14, 59]


@pytest.mark.parametrize("clock_s", [0.0, 240.0, 1_700_000_240.0])
def test_only_differences_of_the_writers_clock_count(clock_s: float) -> None:
    """It may show anything."""
    assert observed(Liveness(0), [1, 16, 31], [1, 20, 45, 90], Writer(clock_s)) == [0, 4, 14, 59]


def test_a_heartbeat_is_not_older_than_the_observation_that_did_not_see_it() -> None:
    """A clock that is set back by an hour makes nobody silent."""
    silence, writer = Liveness(0), Writer()
    assert silence.observe(writer.beats(1), 1, answered=True) == 0
    assert silence.observe(writer.beats(15), 16, answered=True) == pytest.approx(1)
    back = {"beat": 99, "counter": int((writer.ahead_s + 20) * 1e9)}  # 15 s late by its clock
    assert silence.observe(back, 31, answered=True) == pytest.approx(11)
    far_back = {"beat": 100, "counter": int((writer.ahead_s + 21) * 1e9)}
    assert silence.observe(far_back, 46, answered=True) == 15


def test_a_counter_that_is_no_clock_tells_no_time() -> None:
    """A writer that has read the file of a clock 4 minutes ahead counts on from there, by ones, for 4 minutes."""
    silence, writer = Liveness(0), Writer()
    writer.reads(int((writer.ahead_s + 240) * 1e9))
    moments = [15.0 * number for number in range(1, 20)]
    assert [silence.observe(writer.beats(at), at + 3, answered=True) for at in moments] == [0.0] * len(moments)


@pytest.mark.parametrize("counter", [None, "1", 1.5, True])
def test_without_a_counter_a_heartbeat_counts_from_its_reading(counter: object) -> None:
    """As from a file that has none."""
    silence = Liveness(0)
    assert [silence.observe({"beat": at, "counter": counter}, at, answered=True) for at in (5, 20)] == [0, 0]


def test_what_storage_does_not_answer_is_not_the_nodes_silence() -> None:
    """Nor is it when the heartbeat that comes then was written before."""
    silence, writer = Liveness(0), Writer()
    silence.observe(writer.beats(1), 1, answered=True)
    last = writer.beats(16)
    for moment in range(16, 116, 10):
        assert silence.observe(None, moment, answered=False) == 0
    assert silence.observe(last, 116, answered=True) == 10
