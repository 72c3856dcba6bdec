"""``python -m oci_cluster <verb>``: the one door between shell and Python."""

from __future__ import annotations

import os
import signal

if __name__ == "__main__":  # until a verb has its own handlers, a stop is one line, and has the code of one

    def _stop(*_: object) -> None:
        os.write(2, f"{os.environ.get('CLUSTER_PROGRAM', 'oci_cluster')}: stopped\n".encode())
        os._exit(143)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.system.console import check_stdout, discard, program, say_to_stderr
from oci_cluster.system.files import at_home
from oci_cluster.system.lost_interrupts import keep_interrupts, raise_at, stop_looking
from oci_cluster.system.redaction import RedactingFormatter

# Modules are imported by the verb that needs them: an agent must not pay for the launcher, nor `stop` for an agent.
# ruff: noqa: PLC0415

Words = Sequence[str]


def _agent(_: Words) -> int:
    from oci_cluster.node.start import run_agent

    return run_agent(os.environ)


def _upload_outputs(words: Words) -> int:
    from oci_cluster.node.outputs import upload_node_outputs

    source, manifest = map(Path, words)
    upload_node_outputs(os.environ, source, manifest)
    return 0


def _fetch_outputs(words: Words) -> int:
    from oci_cluster.node.outputs import bring_node_outputs

    target, manifest = map(Path, words)
    bring_node_outputs(os.environ, target, manifest)
    return 0


def _runner(words: Words) -> int:
    import tempfile

    from oci_cluster.backends.local.runner import run_nodes
    from oci_cluster.node import hang_detector, main, worker  # noqa: F401 - once, and not by each agent that is forked
    from oci_cluster.node.start import run_agent

    directory, lock = words

    def be_agent(environ: Mapping[str, str]) -> int:
        os.environ.clear()  # libraries read it
        os.environ.update(environ)
        tempfile.tempdir = None  # as that environment has it
        return _guarded(lambda: run_agent(environ, Path(directory) / "logs"), program())

    return run_nodes(Path(directory), int(lock), be_agent)


def _images(words: Words) -> int:
    from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
    from oci_cluster.images.build import run
    from oci_cluster.launcher.verbs import heed_signals

    heed_signals()
    action, *frameworks = [word for word in words if word != "--to-push"] or [""]
    say = say_to_stderr(program())
    return run(action, frameworks, to_push="--to-push" in words, environ=os.environ, root=PROJECT_ROOT, say=say)


def _lock(words: Words) -> int:
    from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
    from oci_cluster.images import lock

    uv, *names = words  # folders, files or none: then our own
    lock.run(uv, names, PROJECT_ROOT)
    return 0


def _prepare(words: Words) -> int:
    from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
    from oci_cluster.system.envs.python_env import ensure_framework

    raise_at(signal.SIGTERM, signal.SIGHUP)  # to end the installer, too
    print(ensure_framework(PROJECT_ROOT, PROJECT_ROOT / words[0] / "env.yaml", say_to_stderr(program())))
    return 0


def _requirements(words: Words) -> int:
    from oci_cluster.system.envs.package_lists import requirements

    print("\n".join(requirements(Path(words[0]))))
    return 0


def _orphan(words: Words) -> int:
    from oci_cluster.launcher import verbs

    verbs.end_orphan(*words)  # BACKEND CLUSTER_ID [FILE [REASON]]
    return 0


def _for_people(verb: str, words: Words) -> int:
    from oci_cluster.launcher import verbs

    return verbs.run(verb, words)


def _of_kubernetes(verb: str, words: Words) -> int:
    from oci_cluster.launcher import verbs

    line, given = verbs.read_equipped(verb, words)
    from oci_cluster.backends.kubernetes.quota import run as quota
    from oci_cluster.system.screen import screen_of

    out = quota.Out(print, say_to_stderr(program()), screen_of(sys.stdout, os.environ))
    return quota.run(verb, line.words, line.given, given, out)


def _setup(words: Words) -> int:
    from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
    from oci_cluster.launcher import verbs

    line, given = verbs.read_equipped("setup", words)
    from oci_cluster.backends.oci import setup

    return setup.run(line.words, line.given, given, PROJECT_ROOT, show=print, say=say_to_stderr(program()))


def _from_ads(words: Words) -> int:
    from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
    from oci_cluster.launcher import verbs

    line, _ = verbs.read_equipped("from-ads", words)
    from oci_cluster.ads_migration import from_ads

    asked = from_ads.Asked(
        yaml=at_home(line.words[0]),
        backend=line.value("--backend", "oci"),
        code=line.value("--code"),
        output=at_home(line.value("--output")) if line.has("--output") else None,
        merge=line.has("--merge"),
        force=line.has("--force"),
        dry_run=line.has("--dry-run"),
    )
    return from_ads.run(asked, PROJECT_ROOT, print, say_to_stderr(program()))


def _of_projects(verb: str, words: Words) -> int:
    from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
    from oci_cluster.launcher.args import command_line
    from oci_cluster.project import create, update

    raise_at(signal.SIGTERM, signal.SIGHUP)
    line, run = command_line.read(verb, words), {"new": create.run, "update": update.run}[verb]
    return run(line.words, line.given, PROJECT_ROOT, cwd=Path.cwd(), show=print, say=say_to_stderr(program()))


_PEOPLES = ("launch", "session", "status", "list", "logs", "scale", "stop", "check", "connect")
# The --help of scripts/<verb>.sh tells more of most; each of the others has its words in its function.
VERBS: Mapping[str, Callable[[Words], int]] = {
    "agent": _agent,
    **{verb: partial(_for_people, verb) for verb in _PEOPLES},
    **{verb: partial(_of_kubernetes, verb) for verb in ("quota", "queue")},
    "setup": _setup,
    "from-ads": _from_ads,
    **{verb: partial(_of_projects, verb) for verb in ("new", "update")},
    "images": _images,
    "lock": _lock,
    "prepare": _prepare,
    "requirements": _requirements,
    "upload-outputs": _upload_outputs,
    "fetch-outputs": _fetch_outputs,
    "orphan": _orphan,
    "runner": _runner,
}


def main(arguments: Words) -> int:
    """Run one verb and return its exit code; expected failures become one line on stderr."""
    if directory := os.environ.pop("CLUSTER_CWD", ""):  # see exec_cluster in common/lib.sh
        try:
            os.chdir(directory)
        except OSError as error:
            say_to_stderr(program())(f"error: the folder that you are in, {directory}: {error.strerror}; go to another")
            return ExitCode.USAGE
    verb, *words = arguments or ["--help"]
    if verb in {"-h", "--help"}:
        print("usage: python -m oci_cluster VERB ...", *VERBS, sep="\n  ")
        return 0
    if verb not in VERBS:
        sys.stderr.write(f"{program()}: error: unknown verb '{verb}'; known are {', '.join(VERBS)}\n")
        return ExitCode.USAGE
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("oci").setLevel(logging.WARNING)  # OCI's SDK tells of itself as it is imported
    raise_at(signal.SIGINT)
    return _guarded(lambda: VERBS[verb](words), program())


def _guarded(call: Callable[[], int], name: str) -> int:
    try:
        code = call()
        sys.stdout.flush()  # here, where a reader that has gone is expected
    except ClusterError as error:
        stop_looking()
        say_to_stderr(name)(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        stop_looking()
        say_to_stderr(name)("stopped")
        return ExitCode.STOPPED
    except ModuleNotFoundError as error:
        return _without(error, name)
    except BrokenPipeError:  # `logs.sh | head`
        discard(sys.stdout)
        return ExitCode.OK
    except Exception:
        logging.getLogger(name).exception("a bug of ours; please report it with these lines")
        return ExitCode.BUG
    return code


def _without(error: ModuleNotFoundError, name: str) -> int:
    """Go on where the launcher's packages are: ``.venv`` was gone, and is made anew."""
    from oci_cluster.launcher.context import use_own_environment

    if not os.environ.get("CLUSTER_PROGRAM"):
        raise error  # not for want of .venv
    try:
        use_own_environment()
    except ClusterError as problem:
        say_to_stderr(name)(f"error: {problem}")
        return problem.exit_code
    raise error


def _to_the_end(arguments: Words) -> int:
    """Run one verb; what is decided stays, without a traceback out of Python's own end."""
    try:
        check_stdout()
        keep_interrupts()
        code = main(arguments)
        _heed_no_more()
    except KeyboardInterrupt:  # while an error was being told, or just now
        _heed_no_more()
        say_to_stderr(program())("stopped")
        return ExitCode.STOPPED
    return code


def _heed_no_more() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(_to_the_end(sys.argv[1:]))
