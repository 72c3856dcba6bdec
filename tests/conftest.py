"""What all rings share: signals as a terminal has them, and what is printed at the end."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Generator

import pytest


def pytest_configure() -> None:
    """Take the signals that this process ignores: what it starts would ignore them, too, and no shell can undo that.

    In the background SIGINT is ignored, under nohup SIGHUP, and in xdist's workers SIGINT. A handler is not inherited.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests, while they are read and afterwards: thousands, and all are kept."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


class _Clock:
    """CPU seconds of this process and of its children that have ended and were waited for."""

    spent_s = sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a phase's CPU seconds into its report, which also travels from xdist's workers."""
    report = yield
    before, _Clock.spent_s = _Clock.spent_s, sum(os.times()[:4])
    report.user_properties = [*report.user_properties, ("cpu_s", _Clock.spent_s - before)]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what did not apply here; and which files and tests took longest: wall and CPU, with setup and teardown."""
    for report in terminalreporter.stats.get("passed", []):
        for name, text in report.user_properties:
            if name == "not applicable" and report.when == "call":
                terminalreporter.write_line(f"NOT APPLICABLE: {report.nodeid}: {text}", yellow=True, bold=True)
    shown = os.environ.get("TEST_TIMES")
    if not shown or not terminalreporter.stats.get("passed"):
        return
    for what, length in (("tests", None), ("files", 1)):
        costs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for report in (report for reports in terminalreporter.stats.values() for report in reports):
            if isinstance(report, pytest.TestReport):
                cost = costs["::".join(report.nodeid.split("::")[:length])]
                cost[0] += report.duration
                cost[1] += dict(report.user_properties).get("cpu_s", 0.0)
                cost[2] += report.duration if report.when == "setup" else 0.0
        terminalreporter.section(f"slowest {what}: seconds of wall, of CPU of children that were waited for, of setup")
        for name, cost in sorted(costs.items(), key=lambda item: -item[1][0])[: int(shown)]:
            terminalreporter.write_line("{:7.1f} {:7.1f} {:7.1f}  {}".format(*cost, name))
        total = map(sum, zip(*costs.values(), strict=True))
        terminalreporter.write_line("{:7.1f} {:7.1f} {:7.1f}  all".format(*total))
