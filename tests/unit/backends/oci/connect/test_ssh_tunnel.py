"""A way by ssh: its line is replaced when it is lost or soon will be, and what that means for connections."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import Any

import pytest

from oci_cluster.backends.oci.connect.tunnels import Asker, SshTunnel, Tunnel
from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, StoppedError


def no_service() -> Any:
    raise AssertionError  # nobody is asked


class FakeLine(Tunnel):
    """A line of a socket pair for each connection; *renew_at* is the way's."""

    def __init__(self, renew_at: float, *, answers: bool = True) -> None:
        self.renew_at = renew_at
        self.runs = True
        self.is_closed = False
        self.answers = answers
        self.far_ends: list[socket.socket] = []

    def is_running(self) -> bool:
        return self.runs

    def dial(self) -> socket.socket:
        if not self.runs:
            raise ConnectionRefusedError
        near, far = socket.socketpair()
        if self.answers:
            far.sendall(b"hi")
            self.far_ends.append(far)
        else:
            far.close()
        return near

    def close(self) -> None:
        self.runs, self.is_closed = False, True
        for far in self.far_ends:
            far.close()


class FakeWay(SshTunnel):
    """A way whose lines are given."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.is_stopped = False
        self.coming: list[FakeLine | BaseException] = []
        self.olds: list[Tunnel | None] = []
        self.ended: list[Tunnel] = []
        self.rest: list[bool] = []
        super().__init__(Asker({}, no_service, self.said.append, lambda: self.is_stopped, lambda: self.now))

    def new_line(self, old: Tunnel | None) -> Tunnel:
        self.olds.append(old)
        line = self.coming.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    def end_of(self, line: Tunnel) -> None:
        self.ended.append(line)

    def end_rest(self, *, is_quiet: bool) -> None:
        self.rest.append(is_quiet)

    def _tend(self) -> None:
        """Do nothing: the test calls tend()."""


def opened(*lines: FakeLine | BaseException) -> FakeWay:
    tunnel = FakeWay()
    tunnel.coming = list(lines)
    tunnel.open()
    return tunnel


def test_a_line_that_holds_is_left_alone() -> None:
    tunnel = opened(FakeLine(renew_at=100))
    tunnel.now = 99.9
    tunnel.tend()
    assert tunnel.olds == [None]
    tunnel.close()


def test_before_its_end_a_line_is_replaced_and_goes_on_for_its_connections() -> None:
    first, second = FakeLine(renew_at=100), FakeLine(renew_at=200)
    tunnel = opened(first, second)
    with tunnel.dial() as old:
        assert old.recv(2) == b"hi"
        tunnel.now = 100
        tunnel.tend()
        assert not first.is_closed
        first.far_ends[0].sendall(b"on")
        assert old.recv(2) == b"on"
        with tunnel.dial():
            assert len(second.far_ends) == 1
        first.runs = False  # its session is over
        tunnel.tend()
        assert first.is_closed
        assert tunnel.ended == [first]
        assert tunnel.said == []
    tunnel.close()


def test_a_line_that_is_lost_is_made_again_at_once() -> None:
    first, second = FakeLine(renew_at=100), FakeLine(renew_at=200)
    tunnel = opened(first, second)
    first.runs = False
    tunnel.tend()
    assert tunnel.olds == [None, first]
    assert tunnel.ended == [first]
    assert tunnel.said == ["the way to the node was cut, and is there again"]
    with tunnel.dial():
        assert len(second.far_ends) == 1
    tunnel.close()


def test_what_cannot_be_made_again_is_said_once_and_tried_after_growing_pauses() -> None:
    first = FakeLine(renew_at=100)
    failures = [BackendError("no way") for _ in range(5)]
    tunnel = opened(first, *failures, FakeLine(renew_at=500))
    first.runs = False
    tries = []
    for tenth in range(1000):
        tunnel.now = tenth / 10
        before = len(tunnel.olds)
        tunnel.tend()
        if len(tunnel.olds) > before:
            tries.append(tunnel.now)
    pauses = [round(later - sooner) for sooner, later in itertools.pairwise(tries)]
    assert pauses == [1, 2, 4, 8, 16]
    assert tunnel.said == ["no way; tried again in 1 s", "the way to the node was cut, and is there again"]
    tunnel.close()


def test_while_there_is_no_way_a_connection_is_refused_with_the_reason() -> None:
    first = FakeLine(renew_at=100)
    tunnel = opened(first, NotPermittedError("not any more"))
    first.runs = False
    tunnel.tend()
    with pytest.raises(NotPermittedError, match="not any more"):
        tunnel.dial()
    tunnel.close()


def test_a_renewal_that_fails_leaves_the_line_that_is_there() -> None:
    first = FakeLine(renew_at=100)
    tunnel = opened(first, BackendError("full"), FakeLine(renew_at=500))
    tunnel.now = 100
    tunnel.tend()
    assert tunnel.said == ["full; tried again in 1 s"]
    with tunnel.dial():
        assert len(first.far_ends) == 1
    tunnel.now = 101
    tunnel.tend()
    assert not first.is_closed
    tunnel.close()


def test_a_connection_waits_while_the_line_is_made_again() -> None:
    first, second = FakeLine(renew_at=100), FakeLine(renew_at=200)
    tunnel = opened(first, second)
    first.runs = False
    tending = threading.Timer(0.1, tunnel.tend)
    tending.start()
    with tunnel.dial():
        assert len(second.far_ends) == 1
    tending.join()
    tunnel.close()


def test_a_first_connection_that_ends_at_once_means_that_nobody_listens() -> None:
    line = FakeLine(renew_at=100, answers=False)
    tunnel = opened(line)
    with pytest.raises(BackendError, match="nobody listens on that port"):
        tunnel.dial()
    line.answers = True
    with tunnel.dial() as connection:
        assert connection.recv(2) == b"hi"
    line.answers = False
    with tunnel.dial() as connection:  # there was somebody: this is no answer of the way's
        assert connection.recv(2) == b""
    tunnel.close()


def test_the_end_closes_all_lines_and_is_once() -> None:
    first, second = FakeLine(renew_at=100), FakeLine(renew_at=200)
    tunnel = opened(first, second)
    tunnel.now = 100
    tunnel.tend()
    tunnel.close()
    tunnel.close()
    assert (first.is_closed, second.is_closed, tunnel.rest) == (True, True, [True])
    with pytest.raises(BackendError, match="is closed"):
        tunnel.dial()


def test_a_first_line_that_cannot_be_made_leaves_nothing() -> None:
    tunnel = FakeWay()
    tunnel.coming = [BackendError("no")]
    with pytest.raises(ClusterError, match="no"):
        tunnel.open()
    assert tunnel.rest == [True]


def test_nothing_is_said_of_a_line_that_is_not_wanted_any_more() -> None:
    first = FakeLine(renew_at=100)
    tunnel = opened(first, StoppedError("stopped"))
    first.runs = False
    tunnel.tend()
    assert tunnel.said == []
    tunnel.close()
