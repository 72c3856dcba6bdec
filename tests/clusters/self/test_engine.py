"""A container engine of one's own, and job runs of the stand-in for OCI as its containers."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import engine as engines
import psutil
import pytest
from engine import Engine, why_not
from harness import wait_until
from hosts import NETWORK, SUBNET
from oci_service.handle import Service

oci = pytest.importorskip("oci", reason="needs the OCI SDK")

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"an engine: {WHY_NOT}")

REPOSITORY = f"{Engine.registry}/tools"
IMAGE = f"{REPOSITORY}:1"
SHAPE = {"shapeName": "VM.Standard2.1", "blockStorageSizeInGBs": 50}
PROGRAMS = ("sh", "cat", "hostname", "id", "openssl", "sleep")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return an engine in whose registry there is a small image, of an ordinary user."""
    directory = tmp_path_factory.mktemp("engine")
    with engines.running(directory / "e") as engine:
        import_tools(engine, directory)
        engine.run("push", IMAGE)
        yield engine


@pytest.fixture(scope="module")
def digest(engine: Engine) -> str:
    """Return the digest of the image in the registry."""
    found: list[str] = json.loads(engine.run("inspect", IMAGE).stdout)[0]["RepoDigests"]
    return found[0].partition("@")[2]


def import_tools(engine: Engine, directory: Path) -> None:
    """Make an image of a few programs of this machine and what they are linked with."""
    files = {f"bin/{name}": Path(str(shutil.which(name))) for name in PROGRAMS}
    for program in list(files.values()):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        files |= {library: Path(library) for library in re.findall(r"(/\S+) \(0x", linked)}
    with tarfile.open(directory / "tools.tar", "w") as archive:
        for name, file in files.items():
            archive.add(file.resolve(), name)
    changes = ("USER 1000", 'ENTRYPOINT ["/bin/sh", "-c"]', 'CMD ["echo of the image"]', "ENV OF_IMAGE=yes PATH=/bin")
    engine.run("import", *(f"--change={change}" for change in changes), str(directory / "tools.tar"), IMAGE)


@pytest.fixture(scope="module")
def service(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service") / "s", engine=engine) as service:
        service.control({"cancel_grace_s": 2})
        yield service


@pytest.fixture(autouse=True)
def proxied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clients in this process use the service."""
    if "service" in request.fixturenames:
        use(request.getfixturevalue("service"), monkeypatch)


def use(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in service.environ.items():
        monkeypatch.setenv(name, value)


class User:
    """Someone who makes jobs and runs."""

    def __init__(self, service: Service) -> None:
        config = oci.config.from_file(service.environ["OCI_CLI_CONFIG_FILE"])
        self.service = service
        self.science = oci.data_science.DataScienceClient(config)
        self._in = {
            "projectId": service.settings["PROJECT_OCID"],
            "compartmentId": service.settings["COMPARTMENT_OCID"],
        }

    def run(self, image: str = IMAGE, *, environ: dict[str, str] | None = None, **container: Any) -> str:
        """Make a job of a container and run it; return the run's OCID."""
        details = {"jobEnvironmentType": "OCIR_CONTAINER", "image": image, **container}
        job = {
            "jobConfigurationDetails": {"jobType": "DEFAULT", "environmentVariables": environ or {}},
            "jobInfrastructureConfigurationDetails": {
                **SHAPE,
                "jobInfrastructureType": "STANDALONE",
                "subnetId": self.service.settings["SUBNET_OCID"],
            },
            "jobEnvironmentConfigurationDetails": details,
        }
        return self._run(job)

    def run_groups(self, groups: list[dict[str, Any]]) -> str:
        """Run a job of groups of nodes, which start one after the other; return the run's OCID."""
        job = {
            "jobConfigurationDetails": {"jobType": "EMPTY"},
            "jobInfrastructureConfigurationDetails": {"jobInfrastructureType": "EMPTY"},
            "jobNodeConfigurationDetails": {
                "jobNodeType": "MULTI_NODE",
                "startupOrder": "IN_ORDER",
                "jobNetworkConfiguration": {"jobNetworkType": "DEFAULT_NETWORK"},
                "jobNodeGroupConfigurationDetailsList": groups,
            },
        }
        return self._run(job)

    @staticmethod
    def group(name: str, script: str, probe: list[str] | None = None) -> dict[str, Any]:
        """Return a group of one node."""
        configuration: dict[str, Any] = {"jobType": "DEFAULT"}
        if probe:
            details = {"jobProbeCheckType": "EXEC", "command": probe, "periodInSeconds": 1, "failureThreshold": 60}
            configuration["startupProbeDetails"] = details
        container = {"jobEnvironmentType": "OCIR_CONTAINER", "image": IMAGE, "cmd": [script]}
        return {
            "name": name,
            "replicas": 1,
            "jobConfigurationDetails": configuration,
            "jobInfrastructureConfigurationDetails": {**SHAPE, "jobInfrastructureType": "MULTI_NODE"},
            "jobEnvironmentConfigurationDetails": container,
        }

    def _run(self, job: dict[str, Any]) -> str:
        settings = self.service.settings
        log = {"enableLogging": True, "logGroupId": settings["LOG_GROUP_OCID"], "logId": settings["LOG_OCID"]}
        made = self.science.create_job({**self._in, "jobLogConfigurationDetails": log, **job}).data.id
        return str(self.science.create_job_run({**self._in, "jobId": made}).data.id)

    def details(self, run: str) -> str:
        """Return how a run ended, when it has."""
        ended = self.service.wait(run)
        return f"{ended['lifecycleState']} {ended['lifecycleDetails']}"


# --- Job runs


def test_run_is_its_image_with_the_environment_of_a_run(engine: Engine, service: Service) -> None:
    """As the image's user, who can read the run's files; the service is reached from an address of the subnet."""
    user = User(service)
    script = (
        'id -u; hostname -I; echo "$GIVEN"; echo $OF_IMAGE $PATH;'
        " cat $OCI_RESOURCE_PRINCIPAL_RPST $OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM >/dev/null && echo read;"
        " openssl s_client -proxy ${HTTPS_PROXY#http://} -connect objectstorage.us-ashburn-1.oraclecloud.com:443"
        " -CAfile $REQUESTS_CA_BUNDLE -verify_return_error </dev/null >/dev/null 2>&1 && echo reached;"
        " echo to stderr >&2; exit 7"
    )
    run = user.run(environ={"GIVEN": "two  words\nof 'mine'"}, cmd=[script])
    assert user.details(run) == "FAILED Job run artifact execution failed with exit code 7."
    printed = json.loads(service._ask("GET", "log", run=run))
    assert [line["text"] for line in printed if line["kind"] == "stderr"] == ["to stderr"]
    uid, addresses, *rest = [line["text"] for line in printed if line["kind"] == "stdout"]
    assert uid == "1000"
    found = [ipaddress.IPv4Address(address) for address in addresses.split()]
    assert sum(address in SUBNET for address in found) == 1
    assert all(address in NETWORK for address in found)
    assert rest == ["two  words", "of 'mine'", "yes /bin", "read", "reached"]
    assert not engine.run("ps", "--all", "--quiet").stdout, "it was removed"


def test_image_says_what_runs_unless_the_job_does(service: Service) -> None:
    user = User(service)
    own, others, no_such = user.run(), user.run(entrypoint=["/bin/cat", "/no-such"]), user.run(entrypoint=["/no-such"])
    assert user.details(own) == "SUCCEEDED "
    assert service.log(own) == "of the image\n"
    assert user.details(others) == "FAILED Job run artifact execution failed with exit code 1."
    assert "/no-such" in service.log(others)
    assert user.details(no_such) == "FAILED Job run artifact execution failed with exit code 127."
    assert "/no-such" in service.log(no_such)


def test_canceled_run_has_its_grace(service: Service) -> None:
    """One that heeds TERM ends by itself, the other is killed when the grace is over."""
    user = User(service)
    heeds = user.run(cmd=["trap 'echo ended; exit' TERM; echo up; while :; do sleep 0.05; done"])
    ignores = user.run(cmd=["trap 'echo not me' TERM; echo up; while :; do sleep 0.05; done"])
    for run in (heeds, ignores):
        wait_until(lambda: "up" in service.log(run), f"the start of {run}")  # noqa: B023 - called here
        user.science.cancel_job_run(run)
    for run, last in ((heeds, "ended"), (ignores, "not me")):
        assert user.details(run) == "CANCELED Job run was canceled."
        assert service.log(run).splitlines() == ["up", last]


def test_killed_run_fails(service: Service) -> None:
    user = User(service)
    run = user.run(cmd=["echo up; sleep 1000"])
    wait_until(lambda: "up" in service.log(run), f"the start of {run}")
    service.kill(run)
    assert user.details(run) == "FAILED Job run artifact execution failed with exit code 137."


def test_image_must_be_the_registrys(engine: Engine, service: Service, digest: str) -> None:
    """By its name, its tag and its digest, wherever that stands; what the engine itself has does not count."""
    engine.run("tag", IMAGE, f"{REPOSITORY}:2")
    user, other = User(service), f"sha256:{'0' * 64}"
    good = {IMAGE: digest, f"{IMAGE}@{digest}": None, f"{REPOSITORY}@{digest}": digest}
    bad = {
        f"{REPOSITORY}:2": None,
        f"{REPOSITORY}-not:1": None,
        REPOSITORY: digest,
        f"{REPOSITORY}@{other}": None,
        f"{IMAGE}@{other}": None,
        f"{IMAGE}@{digest}": other,
        IMAGE: other,
    }
    given = [(image, by, is_good) for is_good, images in ((True, good), (False, bad)) for image, by in images.items()]
    runs = [user.run(image, imageDigest=by) for image, by, _ in given]
    for run, (image, by, is_good) in zip(runs, given, strict=True):
        details = f"FAILED Error pulling image {image}: not found or not authorized."
        assert user.details(run) == ("SUCCEEDED " if is_good else details), (image, by)


def test_nodes_of_a_group_wait_for_the_probe_of_the_last(service: Service) -> None:
    """A probe runs in the container, with what it was given; the nodes' file is read there as it grows."""
    user = User(service)
    look = "while :; do case $(cat $CLUSTER_NODES_METADATA_FILE 2>&1) in *'k\": 1'*) break;; esac; sleep 0.05; done;"
    look += " cat $CLUSTER_NODES_METADATA_FILE"
    probe = ["sh", "-c", "cat $CLUSTER_NODES_METADATA_FILE"]
    groups = [user.group("main", look, probe), user.group("workers", "echo $NODE_RANK $(hostname -I)")]
    run = user.run_groups(groups)
    assert user.details(run) == "SUCCEEDED "
    rank, *addresses = service.log(run, 1).split()
    assert rank == "1"
    assert json.loads(service.log(run, 0))[1]["IPAddress"] in addresses
    fails = {"command": ["sh", "-c", "exit 1"], "failureThreshold": 2}
    groups[0]["jobConfigurationDetails"]["startupProbeDetails"] |= fails
    run = user.run_groups(groups)
    assert user.details(run) == "FAILED Job run artifact execution failed with exit code 137 in node group 'main'."
    assert service.log(run, 1) == ""


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[Engine]:
    """Return an engine that a test may kill, with a service that it may end."""
    with engines.running(tmp_path / "e") as engine:
        import_tools(engine, tmp_path)
        engine.run("push", IMAGE)
        yield engine


def test_service_leaves_nothing_in_the_engine(
    own_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither containers nor networks; so the next finds room."""

    def left() -> list[str]:
        networks = own_engine.run("network", "ls", "--quiet", "--filter=label=oci-service").stdout
        return (networks + own_engine.run("ps", "--all", "--quiet").stdout).split()

    for ends_by in ("SIGKILL", "itself"):
        with Service(tmp_path / ends_by, engine=own_engine) as service:
            use(service, monkeypatch)
            run = User(service).run(cmd=["echo up; sleep 1000"])
            wait_until(lambda: "up" in service.log(run), f"the start of {run}")  # noqa: B023 - called here
            assert len(left()) == 3, "two networks and a container"
            if ends_by == "SIGKILL":
                service.process.send_signal(signal.SIGKILL)
                service.process.wait()
        wait_until(lambda: not left(), "the end of all that the service had in the engine", 120.0)


def test_run_is_lost_with_its_engine(own_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is no exit code; the engine starts again with what it had, and the service goes on."""
    with Service(tmp_path / "s", engine=own_engine) as service:
        use(service, monkeypatch)
        user = User(service)
        run = user.run(cmd=["echo up; sleep 1000"])
        wait_until(lambda: "up" in service.log(run), f"the start of {run}")
        own_engine.kill()
        assert own_engine.run("ps", check=False).returncode != 0
        assert str(own_engine.directory) not in Path(f"/proc/{own_engine.pid}/mounts").read_text()
        assert user.details(run) == "FAILED Job run infrastructure was lost."
        own_engine.start()
        assert user.details(user.run()) == "SUCCEEDED "


# --- The engine itself


def test_builds_reach_the_registries_alone(engine: Engine) -> None:
    """There is no way out but the proxy, and that lets nobody go elsewhere; it serves pip's own directories."""
    program = (
        "import sys, urllib.error, urllib.request\n"
        "for address in sys.argv[1:]:\n"
        "    try: print(urllib.request.urlopen(address, timeout=60).status)\n"
        "    except urllib.error.HTTPError as error: print(error.code)\n"
        "    except OSError as error: print(error)\n"
    )
    addresses = ("http://127.0.0.2/", "https://127.0.0.2/", engine.environ["PIP_FIND_LINKS"])
    command = engine.inside(sys.executable, "-I", "-c", program, *addresses)
    done = subprocess.run(command, env=engine.environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "403",
        "<urlopen error Tunnel connection failed: 403 127.0.0.2:443 is no package registry>",
        "200",
    ]
    interfaces = subprocess.run(engine.inside("ip", "-json", "route"), capture_output=True, text=True, check=True)
    assert not [route for route in json.loads(interfaces.stdout) if route["dst"] == "default"]


def test_engine_that_was_killed_alone_starts_again(own_engine: Engine) -> None:
    """With the container that it left behind, which it ends."""
    script = "trap exit TERM; while :; do sleep 0.05; done"
    container = own_engine.run("run", "--detach", "--network=none", IMAGE, script).stdout.strip()
    own_engine.kill(everything=False)
    assert own_engine.run("ps", check=False).returncode != 0
    assert psutil.Process(own_engine.pid).children(), "the container goes on"
    own_engine.start()
    assert json.loads(own_engine.run("inspect", container).stdout)[0]["State"]["Status"] == "exited"
    own_engine.run("start", container)


@pytest.mark.usefixtures("engine")  # where that does not start, none does
@pytest.mark.parametrize("killed", ["maker", "maker and keeper"])
def test_nothing_outlives_who_made_an_engine(tmp_path: Path, killed: str) -> None:
    """However that ends: no process, no mount; and while the keeper lives, no cgroup."""
    program = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[1].split(); import test_engine\n"
        "from engine import Engine\n"
        "with Engine(Path(sys.argv[2]) / 'e') as engine:\n"
        "    test_engine.import_tools(engine, Path(sys.argv[2]))\n"
        "    engine.run('run', '--detach', '--network=none', test_engine.IMAGE, 'sleep 1000')\n"
        "    print(engine._cgroup, flush=True); sys.stdin.read()\n"
    )
    here = Path(__file__).parent
    command = [sys.executable, "-I", "-c", program, f"{here} {here.parents[1]}", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        cgroup = maker.stdout.readline().strip()

        def all_of_it() -> list[psutil.Process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                found = psutil.Process(maker.pid).children(recursive=True)
                # A container's first process begins as runc.
                names = {process.name() for process in found}
                return found if {"dockerd", "containerd", "docker-registry", "sleep"} <= names else []
            return []

        started = wait_until(all_of_it, "the engine and its container")
        if "keeper" in killed:
            psutil.Process(maker.pid).children()[0].kill()
        maker.kill()
    wait_until(lambda: not any(map(psutil.Process.is_running, started)), f"the end of {started}", 60.0)
    if killed == "maker":
        wait_until(lambda: not list(Path("/sys/fs/cgroup").glob(f"*/{cgroup}")), f"the end of {cgroup}", 60.0)
    engines._remove_cgroups(cgroup)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    shutil.rmtree(tmp_path / "e")
