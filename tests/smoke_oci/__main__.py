"""Usage: python -m smoke_oci [--up-to RUNG] [--framework NAME] [--price-per-hour USD] [--page FILE] [--yes]

Climbs a ladder of requests in the tenancy that config.env and the environment name, as a launch reads them: reads
only; Jobs without nodes and runs of one node; two runs; two node groups. It tells which guesses of
tests/oci_service/README.md are right, and writes a page: guess, what was seen, right or wrong, the request's id. It
shows first what it may take and cost at most, and asks. Whatever happens, it removes what it has made; what a killed
one has left, the next one removes.

  --up-to RUNG          the last rung: reads, one, two or groups (default)
  --framework NAME      whose image nodes run (default: the first of this checkout for which there is one)
  --price-per-hour USD  what a node costs you in an hour, in the place of the list price
  --page FILE           where the page goes (default: guesses.md)
  --yes                 do not ask; needed where there is no terminal
  --only-remove         remove what earlier ones have left, and do nothing else

Exit: 0 no guess is wrong; 1 some are; 2 wrong usage; 69, 77, 78 as launch.sh; 143 stopped.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oci_cluster.backends.oci.jobs import requests
from oci_cluster.backends.oci.service import Service, service_environ
from oci_cluster.backends.oci.settings import settings_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.settings.settings_files import read_config
from oci_cluster.errors import ClusterError, ExitCode, SettingsError, StoppedError
from oci_cluster.launcher.launch.plan import Request, make_plan
from smoke_oci.bastions import bastions
from smoke_oci.groups import groups
from smoke_oci.guesses import RUNG_TEXTS, RUNGS, Findings
from smoke_oci.page import page
from smoke_oci.policies import policies
from smoke_oci.prices import bound, price_of
from smoke_oci.reads_and_jobs import jobs, reads
from smoke_oci.room_and_image import room_and_image
from smoke_oci.runs import one, two
from smoke_oci.tenancy import Refused, Tenancy

ROOT = Path(__file__).resolve().parents[2]
# How long main is not ready: the workers of a service that waits for it begin so much later.
READY_S = 6.0


def main() -> int:
    """Climb the ladder; return the exit code."""
    wanted = _arguments()
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: stopped.append(received))
    try:
        return _climb(wanted, lambda: bool(stopped))
    except ClusterError as error:
        _say(f"error: {error}")
        return error.exit_code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="smoke_oci", description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--up-to", default=RUNGS[-1], choices=RUNGS, help=argparse.SUPPRESS)
    parser.add_argument("--framework", default="", help=argparse.SUPPRESS)
    parser.add_argument("--price-per-hour", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, default=Path("guesses.md"), help=argparse.SUPPRESS)
    parser.add_argument("--yes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only-remove", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"smoke-oci: {text}", file=sys.stderr, flush=True)


def _climb(wanted: argparse.Namespace, is_stopped: Any) -> int:
    given = {**read_config(ROOT), **os.environ}
    plan, settings = _planned(wanted.framework, given)
    rungs = RUNGS[: RUNGS.index(wanted.up_to) + 1]
    price = wanted.price_per_hour
    if price is None and (price := price_of(settings["shape"], settings["ocpus"], settings["memory_gbs"])) is None:
        msg = f"no list price is known of SHAPE {settings['shape']}; say yours with --price-per-hour"
        raise SettingsError(msg)
    service = Service(service_environ(given), is_stopped=is_stopped)
    service.use_for_storage()
    owner = requests.tags_of(plan, {})[requests.TAG_OWNER]
    name = f"smoke-{secrets.token_hex(4)}"
    tenancy = Tenancy(service, plan, settings, ROOT, name=name, owner=owner, is_stopped=is_stopped)
    if not wanted.only_remove:
        _say(f"compartment {settings['compartment']}, image {settings['image']}, up to: {RUNG_TEXTS[rungs[-1]]}")
        _say(bound(rungs, settings, price))
        if "one" in rungs:
            _say(f"also an empty bucket, and, where you may, a policy about it, for a while: both are called {name}")
        _confirm(is_yes=wanted.yes)
    if earlier := len(list(tenancy.left())):
        _say(f"an earlier one has left {earlier} Jobs, which go first")
    if (failed := tenancy.remove(_say)) or wanted.only_remove:
        return _tell_left(failed)
    return _found(tenancy, rungs, wanted.page, is_stopped)


def _planned(framework: str, given: Mapping[str, str]) -> tuple[Plan, Mapping[str, Any]]:
    """Return what a launch of main and two workers would be, and its settings; of the first framework with an image."""
    known = sorted(path.parent.name for path in ROOT.glob("*/start-master.sh"))
    problem: ClusterError | None = None
    for name in [framework] if framework else known:
        try:
            plan = make_plan(Request(name, "2", "oci"), given, root=ROOT, cwd=ROOT, max_workers=999)
            settings = settings_of(plan, ROOT)
            settings |= settings["machines"]["WORKER"]  # the ladder has one machine
        except ClusterError as error:
            problem = problem or error
            continue
        if not plan.work_dir.startswith("oci://"):
            msg = f"WORK_DIR is {plan.work_dir}; nodes tell what they see in a bucket: oci://<bucket>@<namespace>/<folder>"
            raise SettingsError(msg)
        return plan, settings
    assert problem is not None
    raise problem


def _confirm(*, is_yes: bool) -> None:
    if is_yes:
        return
    if not sys.stdin.isatty():
        msg = "nobody is at a terminal to agree to that; add --yes"
        raise SettingsError(msg)
    if input("smoke-oci: go on? [y/N] ").strip().lower() not in {"y", "yes"}:
        msg = "nothing was done"
        raise StoppedError(msg)


def _found(tenancy: Tenancy, rungs: tuple[str, ...], where: Path, is_stopped: Any) -> int:
    findings = Findings()
    ready_s = float(os.environ.get("SMOKE_READY_S", READY_S))
    climbing = {
        "reads": lambda: (reads(tenancy, findings), room_and_image(tenancy, findings)),
        "one": lambda: [part(tenancy, findings) for part in (jobs, policies, bastions, one)],
        "two": lambda: two(tenancy, findings),
        "groups": lambda: groups(tenancy, findings, ready_s),
    }
    code = 0
    started = time.monotonic()
    try:
        for rung in rungs:
            _say(RUNG_TEXTS[rung])
            climbing[rung]()
            _say(f"{sum(found.verdict != 'could not tell' for found in findings.found.values())} guesses resolved")
    except StoppedError as error:
        _say(str(error))
        code = ExitCode.STOPPED
    except (ClusterError, Refused) as error:
        _say(f"error: {error}; the rest of the ladder is left out")
        code = error.exit_code if isinstance(error, ClusterError) else ExitCode.UNAVAILABLE
    finally:
        failed = tenancy.remove(_say)
        _write(where, page(findings, rungs, tenancy.settings, time.time()))
    wrong = findings.wrong()
    _say(f"{where}: {len(wrong)} wrong{': ' if wrong else ''}{', '.join(wrong)}; {time.monotonic() - started:.0f} s")
    return _tell_left(failed) or code or (1 if wrong else 0)


def _write(where: Path, text: str) -> None:
    try:
        where.write_text(text)
    except OSError as error:
        _say(f"{error}; the page is on stdout")
        print(text)


def _tell_left(failed: list[str]) -> int:
    for text in failed:
        _say(f"NOT REMOVED, and may cost: {text}; run it again with --only-remove")
    return ExitCode.UNAVAILABLE if failed else 0


if __name__ == "__main__":
    sys.exit(main())
