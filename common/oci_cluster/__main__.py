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

    upload_node_outputs(os.environ, *map(Path, words))
    return 0


def _fetch_outputs(words: Words) -> int:
    from oci_cluster.node.outputs import bring_node_outputs

    bring_node_outputs(os.environ, *map(Path, words))
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

    uv, *names = words
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

    verbs.end_orphan(*words)
    return 0


def _for_people(verb: str) -> Callable[[Words], int]:
    def run(words: Words) -> int:
        from oci_cluster.launcher import verbs

        return verbs.run(verb, words)

    return run


def _of_kubernetes(verb: str) -> Callable[[Words], int]:
    def run(words: Words) -> int:
        from oci_cluster.launcher import verbs

        line, given = verbs.read_equipped(verb, words)
        from oci_cluster.backends.kubernetes.quota import run as quota
        from oci_cluster.system.screen import screen_of

        out = quota.Out(print, say_to_stderr(program()), screen_of(sys.stdout, os.environ))
        return quota.run(verb, line.words, line.given, given, out)

    return run


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


def _of_projects(verb: str) -> Callable[[Words], int]:
    def run(words: Words) -> int:
        from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
        from oci_cluster.launcher.args import command_line
        from oci_cluster.project import create, update

        raise_at(signal.SIGTERM, signal.SIGHUP)
        line, run = command_line.read(verb, words), {"new": create.run, "update": update.run}[verb]
        return run(line.words, line.given, PROJECT_ROOT, cwd=Path.cwd(), show=print, say=say_to_stderr(program()))

    return run


VERBS: Mapping[str, tuple[Callable[[Words], int], str]] = {
    "agent": (_agent, "be the agent of the node that the environment describes"),
    "launch": (_for_people("launch"), "run a cluster; scripts/launch.sh --help says more"),
    "session": (_for_people("session"), "run a notebook, a shell or a board; scripts/session.sh tells more"),
    "status": (_for_people("status"), "show a cluster and its nodes; scripts/status.sh tells more"),
    "list": (_for_people("list"), "list clusters; scripts/list.sh tells more"),
    "logs": (_for_people("logs"), "show the nodes' logs, merged; scripts/logs.sh tells more"),
    "scale": (_for_people("scale"), "add workers, or end some; scripts/scale.sh tells more"),
    "stop": (_for_people("stop"), "end a cluster; scripts/stop.sh tells more"),
    "check": (_for_people("check"), "find what would fail of a launch; scripts/check.sh tells more"),
    "connect": (_for_people("connect"), "make a port of a node reachable here; scripts/connect.sh tells more"),
    "quota": (_of_kubernetes("quota"), "show, make or hold the teams of a Kubernetes; scripts/quota.sh tells more"),
    "queue": (_of_kubernetes("queue"), "show who waits for what on a Kubernetes; scripts/queue.sh tells more"),
    "setup": (_setup, "show what a tenancy lacks for clusters, or make it; scripts/setup.sh tells more"),
    "from-ads": (_from_ads, "make config.env of the YAML of ads opctl run; scripts/from-ads.sh tells more"),
    "new": (_of_projects("new"), "put the templates into a user's own project; scripts/new.sh tells more"),
    "update": (_of_projects("update"), "bring a project to a newer version of them; scripts/update.sh tells more"),
    "images": (_images, "build or push images; scripts/images.sh tells more"),
    "lock": (_lock, "UV FOLDER|FILE...: lock their environment files again, with uv; an empty UV: our own"),
    "prepare": (_prepare, "FRAMEWORK: make its Python environment; print the interpreter"),
    "requirements": (_requirements, "FILE: print the pip packages of a conda environment file"),
    "upload-outputs": (_upload_outputs, "SOURCE MANIFEST: upload the outputs of this node, once"),
    "fetch-outputs": (_fetch_outputs, "TARGET MANIFEST: bring back the outputs of this node's earlier life"),
    "orphan": (_orphan, "BACKEND CLUSTER_ID [FILE [REASON]]: end the cluster that nobody follows any more"),
    "runner": (_runner, "DIRECTORY LOCK: run the nodes of the cluster that is kept there, on this machine"),
}


def _help() -> str:
    lines = ["usage: python -m oci_cluster VERB ...", "", "What shell asks of Python, verb by verb.", ""]
    return "\n".join([*lines, *(f"  {verb:<14}  {text}" for verb, (_, text) in VERBS.items())])


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
        print(_help())
        return 0
    if verb not in VERBS:
        sys.stderr.write(f"{program()}: error: unknown verb '{verb}'; known are {', '.join(VERBS)}\n")
        return ExitCode.USAGE
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("oci").setLevel(logging.WARNING)  # OCI's SDK tells of itself as it is imported
    raise_at(signal.SIGINT)
    return _guarded(lambda: VERBS[verb][0](words), program())


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
    except Exception as error:  # noqa: BLE001 - reported
        return _unexpected(error, name)
    return code


def _unexpected(error: Exception, name: str) -> int:
    """Say what has happened, and return the exit code."""
    if isinstance(error, BrokenPipeError):  # `logs.sh | head`
        discard(sys.stdout)
        return ExitCode.OK
    logging.getLogger(name).error("a bug of ours; please report it with these lines", exc_info=error)
    return ExitCode.BUG


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
