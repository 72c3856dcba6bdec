"""``python -m oci_cluster <verb>``: the one door between shell and Python."""

from __future__ import annotations

import signal

if __name__ == "__main__":  # a Ctrl-C while the rest is imported ends this quietly, not with a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oci_cluster.errors import BackendError, ClusterError, ExitCode, StoppedError, UsageError
from oci_cluster.settings import PROJECT_ROOT

# Modules are imported by the verb that needs them: an agent must not pay for the launcher, nor `stop` for an agent.
# Verbs up to `prepare` run before .venv exists, on the standard library alone.
# ruff: noqa: PLC0415


def _agent(_: argparse.Namespace) -> int:
    from oci_cluster.agent import run_agent

    return run_agent(os.environ)


def _upload_outputs(args: argparse.Namespace) -> int:
    from oci_cluster.outputs import upload_node_outputs

    upload_node_outputs(os.environ, args.source, args.manifest)
    return 0


def _plan(args: argparse.Namespace) -> int:
    from oci_cluster.plan import Request, make_plan

    settings = dict(pair.split("=", 1) for pair in args.set)
    request = Request(args.framework, args.workers, args.backend, settings, args.env, args.arguments, args.python)
    plan = make_plan(request, os.environ, root=PROJECT_ROOT, cwd=Path.cwd(), most_workers=args.most_workers)
    print(json.dumps(plan, indent=2))
    return 0


def _prepare(args: argparse.Namespace) -> int:
    from oci_cluster import environment
    from oci_cluster.errors import SettingsError
    from oci_cluster.follow import say_to_stderr
    from oci_cluster.plan import find_interpreter
    from oci_cluster.settings import framework_defaults

    say = say_to_stderr(_program())
    folder = PROJECT_ROOT / args.framework
    if not args.python:
        print(environment.ensure_framework(PROJECT_ROOT, folder / "env.yaml", say))
        return 0
    try:
        python = find_interpreter(args.python, Path.cwd())
    except ValueError as error:
        raise UsageError(str(error)) from error
    needed = framework_defaults(folder).get("REQUIRED_PACKAGES", "").split(",")
    if missing := environment.missing_packages(python, [name for name in needed if name]):
        command = f"{python} -m pip install {' '.join(missing)}"
        msg = f"--python {python} lacks {', '.join(missing)}; install what is missing: {command}"
        raise SettingsError(msg)
    environment.ensure_tools(PROJECT_ROOT, say)
    print(python)
    return 0


def _requirements(args: argparse.Namespace) -> int:
    from oci_cluster.environment import requirements

    print("\n".join(requirements(args.env_file)))
    return 0


def _images(args: argparse.Namespace) -> int:
    from oci_cluster import images
    from oci_cluster.follow import say_to_stderr

    choices = images.read_choices(os.environ, PROJECT_ROOT)
    found = images.Images(choices, PROJECT_ROOT, os.environ, say_to_stderr(_program()))
    frameworks = list(dict.fromkeys(args.frameworks))
    if not frameworks and args.action in {"pull-check", "size"}:
        frameworks = images.recorded(PROJECT_ROOT, pushed=args.action == "pull-check")
    frameworks = frameworks or images.with_dockerfile(PROJECT_ROOT)
    found.check(frameworks, build=args.action == "build", push=args.action == "push" or args.to_push)
    if args.action == "size":
        print(found.sizes(frameworks))
        return 0
    work = {"build": found.build, "push": found.push, "pull-check": found.pull_check}
    work[args.action](frameworks)
    return 0


def _local_check(_: argparse.Namespace) -> int:
    from oci_cluster import local
    from oci_cluster.plan import without_secrets

    print(json.dumps(without_secrets(local.check(json.load(sys.stdin), PROJECT_ROOT)), indent=2))
    return 0


def _local_submit(args: argparse.Namespace) -> int:
    from oci_cluster import local

    if not args.follow:
        print(local.submit(json.load(sys.stdin), PROJECT_ROOT, args.python).name)
        return 0

    from oci_cluster.follow import Follower, say_to_stderr
    from oci_cluster.process import Signals

    signals = Signals()  # before anything is started: a Ctrl-C at any time from here on stops the cluster
    say = say_to_stderr(_program())
    try:
        cluster = local.submit(json.load(sys.stdin), PROJECT_ROOT, args.python)
    except BackendError as error:
        if signals.received is None:
            raise
        # A Ctrl-C that came while the runner was being forked has ended that.
        msg = "stopped before any node had started"
        raise StoppedError(msg) from error
    nodes = cluster.plan["nodes"]
    say(f"cluster {cluster.name} started: {len(nodes)} nodes; files in {cluster.directory}")
    follower = Follower(
        cluster,
        state=local.state,
        terminate=local.terminate,
        kill=local.kill,
        logs=_logs(cluster, None),
        say=say,
        signals=signals,
    )
    return follower.run()


def _local_runner(args: argparse.Namespace) -> int:
    from oci_cluster import local

    return local.run_nodes(args.directory)


def _local_status(args: argparse.Namespace) -> int:
    from oci_cluster import local
    from oci_cluster.report import describe_cluster, status_text

    cluster = _cluster(args.name)
    found = describe_cluster(cluster, local.state(cluster))
    print(json.dumps(found, indent=2) if args.json else status_text(found))
    return 0


def _local_list(args: argparse.Namespace) -> int:
    from oci_cluster import local
    from oci_cluster.clusters import find_clusters
    from oci_cluster.report import describe_cluster, list_text

    found = [
        describe_cluster(cluster, local.state(cluster)) for cluster in find_clusters(local.state_dir(PROJECT_ROOT))
    ]
    shown = [cluster for cluster in found if args.all or cluster["exit_code"] is None]
    print(json.dumps(shown, indent=2) if args.json else list_text(shown))
    return 0


def _local_logs(args: argparse.Namespace) -> int:
    from oci_cluster import local
    from oci_cluster.follow import show_logs
    from oci_cluster.process import Signals

    cluster = _cluster(args.name)
    logs = _logs(cluster, args.node)
    show_logs(logs, (lambda: local.is_running(cluster)) if args.follow else (lambda: False), Signals())
    return 0


def _local_stop(args: argparse.Namespace) -> int:
    from oci_cluster import local
    from oci_cluster.follow import say_to_stderr

    cluster = _cluster(args.name)
    local.stop(cluster, say_to_stderr(_program()), delete=args.delete)
    print(cluster.name)
    return 0


def _local_scale(args: argparse.Namespace) -> int:
    from oci_cluster import local
    from oci_cluster.follow import say_to_stderr

    say = say_to_stderr(_program())
    print(local.scale(_cluster(args.name), args.workers, PROJECT_ROOT, say, most=args.most_workers))
    return 0


def _elsewhere(backend: str, verb: str) -> Callable[[argparse.Namespace], int]:
    """Return what runs a *verb* of a *backend* whose nodes are not processes of this machine."""

    def run(args: argparse.Namespace) -> int:
        if backend == "oci":
            _use_oci_tools()
        own = importlib.import_module(f"oci_cluster.{backend}_verbs")
        if hasattr(own, f"run_{verb}"):
            return int(getattr(own, f"run_{verb}")(args, _program()))
        from oci_cluster import verbs

        return int(getattr(verbs, f"run_{verb}")(own.backend, args, _program()))

    return run


def _use_oci_tools() -> None:
    """Go on where oci-cli, its SDK and ocifs are; install them on first use."""
    from oci_cluster.environment import ensure_oci_tools
    from oci_cluster.follow import say_to_stderr

    python = ensure_oci_tools(PROJECT_ROOT, say_to_stderr(_program()))
    if Path(sys.prefix).resolve() != python.parents[1].resolve():
        os.environ["CLUSTER_CWD"] = str(Path.cwd())  # as exec_cluster in common/lib.sh: no modules are looked for there
        os.chdir(PROJECT_ROOT / "common")
        os.execv(python, [str(python), "-m", "oci_cluster", *sys.argv[1:]])  # noqa: S606 - our own interpreter


def _cluster(name: str) -> Any:
    from oci_cluster import local
    from oci_cluster.clusters import choose_cluster, find_clusters

    return choose_cluster(name, find_clusters(local.state_dir(PROJECT_ROOT)), local.is_running)


def _logs(cluster: Any, node: str | None) -> Any:
    from oci_cluster import local
    from oci_cluster.follow import MergedLogs, is_terminal

    nodes = local.node_names(cluster)
    if node and node not in nodes:
        msg = f"{cluster.name} has no node '{node}'; it has {', '.join(nodes)}"
        raise UsageError(msg)
    colour = is_terminal(sys.stdout, os.environ)
    return MergedLogs(cluster.directory / "logs", [node] if node else nodes, sys.stdout, colour=colour)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m oci_cluster", description="What shell asks of Python, verb by verb."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, run: Callable[[argparse.Namespace], int], help_: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help_, description=help_)
        added.set_defaults(run=run)
        return added

    verb("agent", _agent, "be the agent of the node that the environment describes")
    added = verb("upload-outputs", _upload_outputs, "upload the outputs of this node, once")
    added.add_argument("source", type=Path)
    added.add_argument("manifest", type=Path)

    added = verb("plan", _plan, "check a launch and print what it will be, as JSON")
    added.add_argument("framework")
    added.add_argument("workers")
    added.add_argument("--backend", required=True)
    added.add_argument("--most-workers", type=int, required=True)
    added.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    added.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    added.add_argument("--python", default="")
    added.set_defaults(arguments=None)
    added = verb("prepare", _prepare, "make the Python environment of a framework; print its interpreter")
    added.add_argument("framework")
    added.add_argument("--python", default="")
    added = verb("requirements", _requirements, "print the pip packages of a conda environment file")
    added.add_argument("env_file", type=Path)

    added = verb("images", _images, "build, push, pull back or measure images; scripts/images.sh tells more")
    added.add_argument("action", choices=["build", "push", "pull-check", "size"])
    added.add_argument("frameworks", nargs="*", metavar="FRAMEWORK")
    added.add_argument("--to-push", action="store_true", help="check also what a push will need")

    _add_backend_verbs(verb)
    return parser


def _add_backend_verbs(verb: Callable[..., argparse.ArgumentParser]) -> None:
    verb("local-check", _local_check, "check the plan on stdin against this machine; print what would be run")
    added = verb("local-submit", _local_submit, "start the nodes of the plan on stdin; print the cluster's name")
    added.add_argument("--python", type=Path, required=True)
    added.add_argument("--follow", action="store_true", help="show progress and logs; exit with its code")
    added = verb("local-runner", _local_runner, "run the nodes of the cluster in a directory")
    added.add_argument("directory", type=Path)
    texts = {
        "oci": (
            "check the plan on stdin; print what would be sent, as commands of oci-cli",
            "install oci-cli and ocifs; print the interpreter that has them",
            "create Job and Job Runs of the plan on stdin; print the cluster's name",
        ),
        "docker": (
            "check the plan on stdin; print what would be run, as commands of the engine",
            "install what the launcher needs; print the interpreter that has it",
            "start the containers of the plan on stdin; print the cluster's name",
        ),
    }
    for backend, (check, prepare, submit) in texts.items():
        added = verb(f"{backend}-check", _elsewhere(backend, "check"), check)
        added.add_argument("--json", action="store_true", help="print JSON")
        verb(f"{backend}-prepare", _elsewhere(backend, "prepare"), prepare)
        added = verb(f"{backend}-submit", _elsewhere(backend, "submit"), submit)
        added.add_argument("--follow", action="store_true", help="show progress and logs; exit with its code")
    local = {
        "status": _local_status,
        "logs": _local_logs,
        "stop": _local_stop,
        "scale": _local_scale,
        "list": _local_list,
    }
    others: list[tuple[str, Any]] = [
        (backend, {name: _elsewhere(backend, name) for name in local}) for backend in texts
    ]
    for backend, own in [("local", local), *others]:
        added = verb(f"{backend}-status", own["status"], "show a cluster and its nodes")
        added.add_argument("name", nargs="?", default="")
        added.add_argument("--json", action="store_true")
        added = verb(f"{backend}-logs", own["logs"], "show the nodes' logs, merged")
        added.add_argument("name", nargs="?", default="")
        added.add_argument("-f", "--follow", action="store_true")
        added.add_argument("--node")
        added = verb(f"{backend}-stop", own["stop"], "stop a cluster and wait until it has ended")
        added.add_argument("name", nargs="?", default="")
        added.add_argument("--delete", action="store_true")
        added = verb(f"{backend}-scale", own["scale"], "add workers, or end some; print how many there are")
        added.add_argument("name")
        added.add_argument("workers")
        added.add_argument("--most-workers", type=int, required=True)
        added = verb(f"{backend}-list", own["list"], "list clusters")
        added.add_argument("--all", action="store_true")
        added.add_argument("--json", action="store_true")


def _run_with_tools(arguments: Sequence[str], error: ModuleNotFoundError) -> int:
    """Run a verb again where its packages are: ``.venv`` was gone, and is made anew."""
    from oci_cluster.environment import ensure_tools, tools_python
    from oci_cluster.follow import say_to_stderr

    if Path(sys.prefix).resolve() == tools_python(PROJECT_ROOT).parents[1].resolve() or not os.environ.get(
        "CLUSTER_PROGRAM"
    ):
        raise error  # not for want of .venv
    python = ensure_tools(PROJECT_ROOT, say_to_stderr(_program()))
    return subprocess.run([python, "-m", "oci_cluster", *arguments], check=False).returncode  # noqa: S603 - ourselves


def _split(arguments: Sequence[str], separator: str) -> list[Sequence[str]]:
    at = arguments.index(separator) if separator in arguments else -1
    return [arguments] if at < 0 else [arguments[:at], arguments[at + 1 :]]


def _program() -> str:
    """Return the name that messages begin with: the script's that called, set by ``common/lib.sh``."""
    return os.environ.get("CLUSTER_PROGRAM") or "oci_cluster"


def main(arguments: Sequence[str]) -> int:
    """Run one verb and return its exit code; expected failures become one line on stderr."""
    if directory := os.environ.pop("CLUSTER_CWD", ""):  # see exec_cluster in common/lib.sh
        os.chdir(directory)
    # Whatever follows --arguments is the entry point's: argparse would take a `--` in it for itself.
    ours, *others = _split(arguments, "--arguments")
    args = _parser().parse_args(ours)
    if others:
        args.arguments = others[0]
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    logging.getLogger("oci").setLevel(logging.WARNING)  # the SDK tells at every start what it is made of
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code: int = args.run(args)
        sys.stdout.flush()  # here, where a reader that has gone is expected
    except ClusterError as error:
        sys.stderr.write(f"{_program()}: error: {error}\n")
        return error.exit_code
    except BrokenPipeError:  # `logs.sh | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again at its end
        return ExitCode.OK
    except KeyboardInterrupt:
        return ExitCode.STOPPED
    except ModuleNotFoundError as error:
        return _run_with_tools(arguments, error)
    except Exception:
        logging.getLogger(_program()).exception("a bug of ours; please report it with these lines")
        return ExitCode.BUG
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
