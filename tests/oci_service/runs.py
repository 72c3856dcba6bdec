"""Job runs that really run: the life of each, from ACCEPTED to its end."""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from oci_service.access import Rights
from oci_service.containers import Containers
from oci_service.faults import Controls
from oci_service.lateness import Lateness, gets_host
from oci_service.logs import Logs
from oci_service.nodes import Given, Member, Plan
from oci_service.places import Loopback, Machines
from oci_service.resources import JSON, now
from oci_service.signatures import Keys, new_key, write_key

ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}


_TOO_LONG = "exceeded its maximum runtime."


class Failed(Exception):  # noqa: N818 - how a run ends
    """The run cannot go on; the message becomes its lifecycleDetails."""


@dataclass
class Runner:
    """What all runs share: where they run, and what they are told of the service."""

    directory: Path
    place: Loopback | Machines | Containers
    controls: Controls
    keys: Keys
    logs: Logs
    authority: Path
    tenancy: str
    proxy: str
    lateness: Lateness
    rights: Rights = field(default_factory=Rights)
    lives: dict[str, Life] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0
    session_key: rsa.RSAPrivateKey = field(default_factory=new_key)  # one for all runs: a new one costs 0.1 s of CPU

    def begin(self, run: JSON, job: JSON, plan: Plan) -> None:
        """Begin the life of a run."""
        with self.lock:
            self.count += 1
            directory = self.directory / str(self.count)
        self.lateness.note(run)
        self.lives[run["id"]] = Life(self, run, job, plan, directory)
        threading.Thread(target=self.lives[run["id"]].live, daemon=True).start()

    def addresses(self, count: int) -> list[str]:
        """Take *count* free addresses of the subnet."""
        with self.lock:
            pool = self.place.addresses
            if self.controls.free_addresses is not None:
                pool = pool[: self.controls.free_addresses]
            free = [address for address in pool if address not in self.used]
            if len(free) < count:
                raise Failed(f"No free IP address in the subnet: {count} needed, {len(free)} available.")
            found = random.sample(free, count)
            self.used |= set(found)
            return found

    def close(self) -> None:
        """Kill every run and take the network away."""
        deadline = time.monotonic() + 60
        for life in list(self.lives.values()):
            life.cancel()
            life.kill()
        for life in list(self.lives.values()):
            life.over.wait(max(0, deadline - time.monotonic()))
        self.place.close()


class Life:
    """The life of one run. Whatever happens in it ends with a state that says so."""

    def __init__(self, runner: Runner, run: JSON, job: JSON, plan: Plan, directory: Path) -> None:
        self._runner = runner
        self._controls = runner.controls
        self._run = run
        self._job = job
        self._plan = plan
        self._directory = directory
        self._changed = threading.Condition()
        self._is_canceled = False
        self._members: list[Member] = []
        self._given = Given(runner, run, job, plan, self._members)
        self.printed: list[JSON] = []
        self.over = threading.Event()

    # --- What others do to it

    def cancel(self) -> None:
        """Ask it to end, if it has not."""
        with self._changed:
            if self._run["lifecycleState"] not in ENDED:
                self._is_canceled = True
                self._become("CANCELING", "Job run cancellation in progress.")
                self._changed.notify_all()

    def kill(self, rank: int | None = None) -> None:
        """Kill a node, or all, as when a machine is lost."""
        for member in self._members:
            if member.executed is not None and rank in {None, member.rank}:
                member.executed.kill()

    def rotate(self) -> None:
        """Refuse the tokens that its nodes have, and give them others."""
        with self._changed:
            self._given.refuse_tokens()
            self._given.renew_tokens()

    def pids(self) -> list[int]:
        """Return the pids of its nodes' reapers."""
        return [member.executed.pid for member in self._members if member.executed is not None]

    # --- Its course

    def live(self) -> None:
        """Go from ACCEPTED to the end."""
        state, details = "FAILED", ""
        try:
            if self._is_canceled_before_it_starts():
                state = "CANCELED"
            else:
                state, details = self._work()
        except Failed as error:
            details = str(error)
        except Exception:  # noqa: BLE001 - a bug here must show in the run, not leave it for ever in progress
            details = f"Internal error of the stand-in: {traceback.format_exc()}"
            sys.stderr.write(details)
        finally:
            try:
                self._clear()
            finally:
                with self._changed:
                    if self._is_canceled:
                        state, details = "CANCELED", "Job run was canceled."
                    self._become(state, details, timeFinished=now())
                self.over.set()

    def _is_flipped(self, guess: str) -> bool:
        return guess in self._controls.flipped

    def _become(self, state: str, details: str, **changes: Any) -> None:
        self._runner.lateness.note(self._run, lifecycleState=state, lifecycleDetails=details, **changes)

    def _is_canceled_before_it_starts(self) -> bool:
        """Wait for a host, as long as that is to take; return whether the run was canceled meanwhile."""
        names = {(self._run.get("freeformTags") or {}).get("oci-cluster-node", ""), str(self._plan.ordinal)}

        def become(state: str, details: str) -> None:
            with self._changed:
                if not self._is_canceled:
                    self._become(state, details)

        return not gets_host(names, self._controls, become, lambda s: self._wait_for(lambda: self._is_canceled, s))

    def _wait_for(self, condition: Any, timeout_s: float | None) -> bool:
        with self._changed:
            return bool(self._changed.wait_for(condition, timeout_s))

    def _work(self) -> tuple[str, str]:
        plan = self._plan
        if plan.ordinal in self._controls.out_of_capacity:
            raise Failed("Out of host capacity.")
        if why := self._runner.rights.why_not(self._run, self._job, plan):
            raise Failed(why)
        images = {group.name: self._image(group.container) for group in plan.groups}
        groups = [group for group in plan.groups for _ in range(group.replicas)]
        for rank, (group, address) in enumerate(zip(groups, self._runner.addresses(len(groups)), strict=True)):
            self._members.append(Member(group, rank, address))
        with self._changed:
            if self._is_canceled:
                return "CANCELED", ""
            details = "Job run artifact execution in progress."
            self._become("IN_PROGRESS", details, timeStarted=now())
        starter = threading.Thread(target=self._start_groups, args=[images], daemon=True)
        starter.start()
        verdict = self._supervise(time.monotonic() + (plan.minutes or 1e6) * self._controls.minute_s)
        states = self._group_states()  # before the others are ended, which is no failure of theirs
        self._end_nodes()
        starter.join()
        self._end_nodes()  # what was being started meanwhile
        gone = "ACTIVE" if self._is_flipped("groups-states") else "DELETED"
        self._show_groups({name: "FAILED" if was == "FAILED" else gone for name, was in states.items()})
        return verdict

    def _supervise(self, deadline: float) -> tuple[str, str]:
        """Return how the run ends, as soon as that is known; keep its tokens fresh until then."""
        while True:
            refresh = time.monotonic() + self._controls.token_lifetime_s / 2
            with self._changed:
                while not self._is_canceled and not self._verdict():
                    self._show_groups(self._group_states())
                    left_s = min(deadline, refresh) - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            if self._is_canceled:
                return "CANCELED", ""
            if verdict := self._verdict():
                return verdict
            if time.monotonic() >= deadline:
                return "FAILED", "Job run " + ("timed out." if self._is_flipped("details-runtime") else _TOO_LONG)
            self._given.renew_tokens()

    def _verdict(self) -> tuple[str, str] | None:
        """Return how the run ends, as soon as that is known."""
        decided = []
        for group in self._plan.groups:
            members = [member for member in self._members if member.group is group]
            good = sum(member.has_ended and member.code == 0 for member in members)
            bad = [member.code for member in members if member.has_ended and member.code != 0]
            if group.replicas - len(bad) < group.minimum:
                is_told = self._plan.is_multi_node and not self._is_flipped("groups-details")
                where = f" in node group '{group.name}'" if is_told else ""
                if bad[0] is None:
                    return "FAILED", f"Job run infrastructure was lost{where}."
                code = 1 if bad[0] == 127 and self._is_flipped("exit-no-program") else bad[0]
                return "FAILED", f"Job run artifact execution failed with exit code {code}{where}."
            decided.append(good >= (group.replicas if self._is_flipped("groups-end") else group.minimum))
        return ("SUCCEEDED", "") if all(decided) else None

    def _group_states(self) -> dict[str, str]:
        found = {}
        for group in self._plan.groups:
            members = [member for member in self._members if member.group is group]
            is_bad = sum(m.has_ended and m.code != 0 for m in members) > group.replicas - group.minimum
            is_up = all(member.executed is not None for member in members)
            found[group.name] = "FAILED" if is_bad else "ACTIVE" if is_up else "CREATING"
        return found

    def _show_groups(self, states: Mapping[str, str]) -> None:
        if self._plan.is_multi_node:
            groups = [
                {"name": name, "lifecycleState": state, "lifecycleDetails": self._group_details(name, state)}
                for name, state in states.items()
            ]
            if groups != self._run.get("nodeGroupDetailsList"):
                self._runner.lateness.note(self._run, nodeGroupDetailsList=groups)

    def _group_details(self, name: str, state: str) -> str:
        if state != "FAILED":
            return ""
        members = [member for member in self._members if member.group.name == name]
        bad = [member.code for member in members if member.has_ended and member.code != 0]
        code = f" with exit code {bad[0]}" if bad and bad[0] is not None else ""
        return f"{len(bad)} of {len(members)} replicas failed{code}."

    def _image(self, container: Mapping[str, Any]) -> JSON:
        """Return the image of the registry that a container is made of."""
        wanted = str(container.get("image", ""))
        if not wanted:
            raise Failed("Job run has no container image; the stand-in runs nothing else.")
        digest = str(container.get("imageDigest") or "")
        found = self._runner.place.image(wanted, digest, self._controls.images)
        if found is None:
            what = "The image is not there:" if self._is_flipped("details-image") else "Error pulling image"
            raise Failed(f"{what} {wanted}: not found or not authorized.")
        return found

    # --- Its nodes

    def _start_groups(self, images: Mapping[str, JSON]) -> None:
        try:
            for group in self._plan.groups:
                members = [member for member in self._members if member.group is group]
                for member in members:
                    if self._is_canceled or self._verdict():
                        return
                    self._start(member, images[group.name])
                    if self._plan.is_multi_node:
                        if self._wait_for(lambda: self._is_canceled, self._controls.metadata_delay_s):
                            return
                        self._given.tell_nodes()
                is_in_order = self._plan.is_in_order and not self._is_flipped("groups-order")
                if is_in_order and not all(map(self._is_started, members)):
                    return
        except Exception:  # noqa: BLE001 - as in live()
            sys.stderr.write(traceback.format_exc())
            with self._changed:
                for member in self._members:
                    member.has_ended |= member.executed is None
                self._changed.notify_all()

    def _start(self, member: Member, image: JSON) -> None:
        directory = self._directory / str(member.rank)
        directory.mkdir(parents=True)
        shutil.copy(self._runner.authority, directory / "ca.pem")
        write_key(self._runner.session_key, directory / "key.pem")
        node = self._runner.place.node(member.address, directory, image)
        for name in ("ca.pem", "key.pem"):
            (directory / name).chmod(node.mode)
        self._given.renew_token(node)
        container = member.group.container
        entrypoint, arguments = container.get("entrypoint") or [], container.get("cmd") or []
        if not entrypoint:
            entrypoint = image.get("entrypoint") or []
            arguments = arguments or image.get("cmd") or []
        words = member.group.configuration.get("commandLineArguments") or ""
        more = words.split() if self._is_flipped("image-arguments") else shlex.split(words)
        command = [*entrypoint, *arguments, *more]
        environ = member.environ = self._given.environ(member, node, image)
        executed = node.start(image.get("directory") or node.working_directory, command or ["true"], environ)
        printed = [
            self._runner.logs.capture(stream, partial(self._print, member.rank, kind))
            for stream, kind in ((executed.stdout, "stdout"), (executed.stderr, "stderr"))
        ]
        with self._changed:
            member.node, member.executed = node, executed
            self._changed.notify_all()
        threading.Thread(target=self._watch, args=[member, printed], daemon=True).start()

    def _watch(self, member: Member, printed: Sequence[threading.Event]) -> None:
        assert member.executed is not None
        code = member.executed.wait()
        for is_over in printed:
            is_over.wait(5)
        with self._changed:
            member.code, member.has_ended = code, True
            self._changed.notify_all()

    def _print(self, rank: int, kind: str, text: str) -> None:
        self.printed.append({"rank": rank, "kind": kind, "time": time.time(), "text": text})
        if self._plan.log is not None and self._runner.rights.may_log(self._run, self._job, self._plan.log[0]):
            name = self._run["displayName"]
            kind = f"com.oraclecloud.datascience.jobrun.{kind}"
            self._runner.logs.add(*self._plan.log, self._run["id"], kind, {"message": text}, subject=name)

    def _is_started(self, member: Member) -> bool:
        """Return whether the startup probe of a node has succeeded, which is asked for as long as it may take."""
        probe = member.group.configuration.get("startupProbeDetails")
        if not probe:
            return True
        assert member.node is not None

        def is_over() -> bool:
            return member.has_ended or self._is_canceled

        self._wait_for(is_over, probe.get("initialDelayInSeconds") or 0)
        for _ in range(probe.get("failureThreshold") or 3):
            if is_over():
                return member.has_ended and member.code == 0
            asked = member.node.start(member.node.working_directory, probe["command"], member.environ)
            for stream in (asked.stdout, asked.stderr):
                self._runner.logs.capture(stream, lambda _: None)
            if asked.wait() == 0:
                return True
            self._wait_for(is_over, probe.get("periodInSeconds") or 10)
        assert member.executed is not None
        member.executed.kill()
        return False

    def _end_nodes(self) -> None:
        """End what runs: TERM, the grace that a canceled run has, KILL."""
        with self._changed:
            left = [m for m in self._members if m.executed is not None and not m.has_ended]
            running = [m.executed for m in left if m.executed is not None]
        for executed in running:
            executed.term()
        self._wait_for(lambda: all(member.has_ended for member in left), self._controls.cancel_grace_s)
        for executed in running:
            executed.kill()
        self._wait_for(lambda: all(member.has_ended for member in left), None)

    def _clear(self) -> None:
        for member in self._members:
            if member.node is not None:
                member.node.close()
            shutil.rmtree(self._directory / str(member.rank), ignore_errors=True)
        with self._runner.lock:
            self._runner.used -= {member.address for member in self._members}
