"""``check.sh --live``: two nodes prove that ports and work dir are reachable."""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends.findings import Checked, Finding, fails, fine
from oci_cluster.contract.cluster import clusters_dir
from oci_cluster.contract.parsers import parse_duration
from oci_cluster.contract.settings.settings_files import (
    PROJECT_ROOT,
    SettingsReader,
    framework_defaults,
    framework_words,
)
from oci_cluster.errors import ClusterError, ExitCode, LostPlanError, StoppedError
from oci_cluster.launcher.args.command_line import CommandLine
from oci_cluster.launcher.context import open_named
from oci_cluster.launcher.launch.launch import launch
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.system.console import Say, program
from oci_cluster.system.text import printable

ITEM = "live"
# The cluster ends after so long whatever happens; a proof takes seconds, once the nodes are there.
_TTL = "10m"
# How long nodes wait for each other: within the TTL, so that the reason is that one has not come.
_TIMEOUT = "5m"
# Where nodes of frameworks meet that need all ports.
_ANY_MEETING = 29999
# Options that say which script is run, and how: the proof's own are given in their place.
_NOT_OURS = ("--entry", "--module", "--code", "--outputs", "--keep", "--ttl", "--name", "--ps", "--json", "--live")
_LINE = re.compile(r"live: (?P<verdict>fine|fails) (?P<text>.*)")
# What says how large a node is, and so what it costs.
_SIZES = ("SHAPE", "MAIN_SHAPE", "WORKER_SHAPE", "OCPUS", "MEMORY_GBS", "CPUS", "MEMORY", "GPUS")


class _CapturedOutput(io.StringIO):
    """Takes the place of stdout: lines go to stderr, and are kept. It is no terminal: colours are no part of them."""

    def write(self, text: str) -> int:
        super().write(text)
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def fileno(self) -> int:
        return sys.stderr.fileno()


def prove(line: CommandLine, checked: Checked, backend: str, say: Say) -> Iterator[Finding]:
    """Launch two nodes, which prove what they reach; remove them; yield the proofs."""
    say(f"live: {bound(checked, backend)}")
    name = f"check-{secrets.token_hex(3)}"
    captured, code, error = _CapturedOutput(), 1, ""
    try:
        with _code(checked, name) as code_dir, contextlib.redirect_stdout(captured):
            code = launch(_line_of(line, checked, name, code_dir))
    except StoppedError:
        raise
    except ClusterError as failure:
        error = f": {failure}"
    finally:
        _remove(line, name, say)
    if code == ExitCode.STOPPED:
        raise StoppedError(f"{name} was stopped, and is removed")
    proofs = [found for text in captured.getvalue().splitlines() if (found := _LINE.search(text))]
    for found in proofs:
        text = printable(found["text"])
        yield fine(ITEM, text) if found["verdict"] == "fine" else fails(ITEM, text, _fix(checked, backend))
    if code or error:
        told = f"the cluster of two nodes ended with {code}{error}; its last lines are above"
        yield fails(
            ITEM, told, f"./scripts/launch.sh {checked.framework} 1 --ttl {_TTL}  # shows more, and keeps its logs"
        )
    elif not proofs:
        yield fails(ITEM, "the cluster of two nodes ended without a proof", "see what its nodes printed, above")
    else:
        yield fine(ITEM, "both nodes read and wrote the work dir, by which they found each other and ended")


def bound(checked: Checked, backend: str) -> str:
    """Return what the two nodes may take at most, in words."""
    settings: Mapping[str, str] = checked.plan.settings if checked.plan else {}
    sizes = " ".join(f"{name}={settings[name]}" for name in _SIZES if settings.get(name))
    of = f" with {sizes}" if sizes else ""
    minutes = parse_duration(_TTL) / 60
    waits = checked.plan.provision_timeout_s / 60 if checked.plan else 0
    start = f", and {waits:g} min at most until they have started" if waits else ""
    return f"2 nodes of {checked.framework} on {backend}{of}, for {minutes:g} min at most{start}; they are removed then"


@contextlib.contextmanager
def _code(checked: Checked, name: str) -> Iterator[Path]:
    """Give the folder of the proof's code, readable for any image's user."""
    # Not in /tmp: there are container engines that see another one.
    folder = clusters_dir(checked.root) / f".{name}"
    folder.mkdir(parents=True, mode=0o755)
    try:
        for path in (
            PROJECT_ROOT / "common" / "live" / "prove.py",
            checked.root / checked.framework / "live" / "peers.py",
        ):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        yield folder
    finally:
        shutil.rmtree(folder)


def _line_of(line: CommandLine, checked: Checked, name: str, code_dir: Path) -> CommandLine:
    ports = _ports(checked)
    last = re.findall(r"\d+", list(ports.values())[-1])[-1] if ports else str(_ANY_MEETING)
    own = [
        *(("--entry", str(code_dir / "prove.py")), ("--name", name), ("--ttl", _TTL)),
        ("--env", f"LIVE_PORTS={' '.join(f'{key}={text}' for key, text in ports.items())}"),
        *(("--env", f"LIVE_MEETING={last}"), ("--env", f"TIMEOUT={_TIMEOUT}")),
        ("--env", "CUDA_VISIBLE_DEVICES="),  # it needs no GPU, and two nodes of this machine cannot share one
    ]
    typed = [pair for pair in line.typed if pair[0] not in _NOT_OURS] + own
    given: dict[str, list[str]] = {key: values for key, values in line.given.items() if key not in _NOT_OURS}
    for key, text in own:
        given[key] = [*given.get(key, []), text]
    return replace(line, words=[checked.framework, "1"], given=given, typed=typed, rest=[])


def _ports(checked: Checked) -> dict[str, str]:
    """Return the ports on which nodes reach each other; none: all ports."""
    folder = checked.root / checked.framework
    environment = checked.plan.environment if checked.plan else {}
    read = SettingsReader(environment, framework_defaults(folder))
    return {name: text for name in framework_words(folder, "NODE_PORTS") if (text := read.text(name))[:1].isdecimal()}


def _remove(line: CommandLine, name: str, say: Say) -> None:
    with contextlib.closing(open_named(line)) as backend:
        try:
            for cluster in backend.find(name):
                with contextlib.suppress(LostPlanError):
                    Lifecycle(backend, PROJECT_ROOT, lambda _: None).stop(cluster, delete=True)
        except ClusterError as error:
            say(f"{name} may have left something: {error}; {program()} leaves it to stop.sh --delete {name}")


def _fix(checked: Checked, backend: str) -> str:
    if backend == "oci":
        return f"./scripts/setup.sh {checked.framework} --apply  # the security rules between nodes"
    return "let the nodes' network allow this port between nodes"
