"""What docs/kubernetes.md and docs/kubernetes-admin.md say, held to the code: its settings, its rights, its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kube.schemas import documents, faults
from kubernetes_rights import CLUSTER_WIDE, documented, rights_of
from port_servers import echo, serving
from unit.backends.kubernetes_place import KubernetesPlace
from unit.fake_forwarder import FakeForwarder
from unit.fake_kubernetes import RefusalError

from oci_cluster.backends.kubernetes.cluster.manifests import INDEX, MOST_CODE_BYTES
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import read_settings_file
from oci_cluster.errors import ClusterError

ROOT = Path(__file__).resolve().parents[4]
USERS, ADMINISTRATORS = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("kubernetes.md", "kubernetes-admin.md")
)
PAGE = USERS + ADMINISTRATORS
# Other programs' own, a word of ours, and what scripts are given.
NOT_OURS = {"NAME", "PUBLIC_ENDPOINT", "NEEDS_ATTENTION", "EXPOSED_PORTS", "LISTEN_ADDRESS"}
CLAIM = {"metadata": {"name": "datasets"}, "spec": {"accessModes": ["ReadWriteMany"]}}


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesPlace]:
    """Return a Kubernetes with a claim, and a queue that admits nothing."""
    place = KubernetesPlace(tmp_path, clock, monkeypatch)
    place.fake.objects["persistentvolumeclaims"] = {"datasets": CLAIM}
    place.fake.objects["localqueues"] = {"team-a": {"metadata": {"name": "team-a"}}}
    yield place
    place.close()


def launch(place: KubernetesPlace, name: str, **settings: str) -> Cluster:
    """Launch a cluster, as launch.sh does."""
    place.settings |= settings
    backend = place.backend
    plan = place.plan(name, 3)
    return place.lifecycle.launch(backend.prepare(backend.place(plan), place.said.append))


def lose_each_answer_once(place: KubernetesPlace) -> None:
    """Have all that is made be made, and nobody be told."""
    lost: set[str] = set()

    def after(method: str, path: str, _body: Any) -> None:
        if method == "POST" and path not in lost:
            lost.add(path)
            raise RefusalError(504, "Timeout", "the server was not able to return a response in time")

    place.fake.after = after


def be_used_by_all_verbs(place: KubernetesPlace, tmp_path: Path) -> None:
    """Do all that a user may do with a cluster, and meet what may be met."""
    lose_each_answer_once(place)
    cluster = launch(place, "mine", VOLUMES="data=pvc:datasets:ro")
    lifecycle = place.lifecycle
    lifecycle.scale(cluster, "+1")  # its place is the last
    lifecycle.scale(cluster, "-1")
    later = place.another()
    (found,) = later.find()
    later.load(found)
    place.print("MAIN", "hello\n", 1)
    copy = later.logs(found, tmp_path, follow=False)
    copy.fetch()
    copy.close()
    place.backend.end(cluster, ["WORKER_1"])  # one in the middle goes by its pod
    place.backend.end(cluster, ["MAIN"])
    place.backend.finish(cluster, place.said.append)


def apply_by_hand(place: KubernetesPlace) -> None:
    """Remove what a person has made of a dry run: nobody owns it."""
    cluster = launch(place, "by-hand")
    for kind in ("secrets", "services", "networkpolicies"):
        for item in place.fake.objects[kind].values():
            item["metadata"].pop("ownerReferences")
    place.lifecycle.stop(cluster)
    place.backend.finish(cluster, place.said.append)
    assert not any(place.fake.objects[kind] for kind in ("secrets", "services", "networkpolicies"))


def wait_for_what_never_comes(place: KubernetesPlace) -> None:
    """See why a cluster waits in its queue, why pods cannot be made, and which queues there are."""

    def suspend(method: str, path: str, body: Any) -> None:
        if method == "POST" and path.endswith("/jobs"):
            body["spec"]["suspend"] = True

    place.fake.before = suspend
    queued = launch(place, "queued", QUEUE="team-a", PRIORITY="low")
    place.backend.states([queued])
    place.allow()
    place.monkeypatch.setattr(place.fake, "_make_pod", lambda *_: None)
    refused = launch(place, "refused", QUEUE="", PRIORITY="")
    for _ in range(5):
        place.backend.states([refused])
        place.later()
    with pytest.raises(ClusterError, match="there is: team-a"):
        launch(place, "nowhere", QUEUE="team-b")


def reach_a_port(place: KubernetesPlace) -> list[tuple[str, str]]:
    """Connect to a port of main; return what was asked for that by WebSocket."""
    with FakeForwarder() as forwarder, serving(echo) as port:
        place.server = forwarder.url
        backend = place.another()
        cluster = launch(place, "reached")
        backend.port_forward(cluster, backend.load(cluster), "MAIN", port, place.said.append).dial().close()
        return forwarder.rights()


def test_its_role_has_what_is_asked_for_and_nothing_else(place: KubernetesPlace, tmp_path: Path) -> None:
    """All verbs together need each right of the page, and no other."""
    be_used_by_all_verbs(place, tmp_path)
    apply_by_hand(place)
    by_websocket = reach_a_port(place)
    wait_for_what_never_comes(place)
    requests = [*place.fake.asked, *by_websocket]
    asked = {right for request in requests if request[1] != CLUSTER_WIDE for right in rights_of(*request)}
    assert asked == documented()
    assert CLUSTER_WIDE in {path for _, path in place.fake.asked}


def test_its_objects_are_what_kubernetes_takes() -> None:
    """And its policy lets pods reach all but the metadata services of clouds."""
    objects = [
        item for block in re.findall(r"```yaml\n(.*?)```", ADMINISTRATORS, re.DOTALL) for item in documents(block)
    ]
    assert faults(objects) == []
    (egress,) = [item["spec"]["egress"] for item in objects if item["kind"] == "NetworkPolicy"]
    everywhere = [block["ipBlock"] for rule in egress for block in rule["to"] if "ipBlock" in block]
    assert everywhere == [
        {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]},
        # Those of OCI, AWS and Google.
        {"cidr": "::/0", "except": ["fd00:c1::a9fe:a9fe/128", "fd00:ec2::254/128", "fd20:ce::254/128"]},
    ]


def test_all_that_is_made_has_the_labels_that_it_names(place: KubernetesPlace) -> None:
    """Each with the value that the table says: by them an administrator finds clusters."""
    cluster = launch(place, "mine", QUEUE="team-a", PRIORITY="low")
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", ADMINISTRATORS, re.MULTILINE)
    told = {label: value.strip("` ") for labels, values in rows for label, value in _pairs(labels, values)}
    meant = {
        "the Job's name": cluster.handle,
        "the framework": "plain",
        "the launch id": cluster.launch_id,
        "QUEUE": "team-a",
        "PRIORITY": "low",
    }
    kinds = ("jobs", "pods", "secrets", "services", "networkpolicies")
    made = [item for kind in kinds for item in place.fake.objects[kind].values()]
    assert {item["metadata"]["name"] for item in made} > {cluster.handle}
    of_others = {"batch.kubernetes.io/job-name", INDEX}
    for item in made:
        labels = {label: value for label, value in item["metadata"]["labels"].items() if label not in of_others}
        assert labels == {label: meant.get(value, value) for label, value in told.items()}


def _pairs(labels: str, values: str) -> list[tuple[str, str]]:
    """Return the labels of a row, each with its value; several may share one."""
    names, words = labels.replace("`", "").split(", "), values.split(", ")
    return list(zip(names, words if len(words) == len(names) else words * len(names), strict=True))


def test_it_names_settings_that_there_are() -> None:
    """In upper case, in code: what is set there, or read about."""
    blocks = " ".join(re.findall(r"```sh\n.*?```", PAGE, re.DOTALL))
    text = " ".join([*re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)), blocks])
    named = set(re.findall(r"(?<![\w<./-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?=[\s=,:]|$)", text))
    named |= set(re.findall(r"(?<![\w<./-])([A-Z][A-Z0-9_]+)=", text))
    assert len(named) > 30, "what is looked for is still how they are written"
    assert named - set(SETTINGS) - NOT_OURS == set()


def test_it_tells_of_every_setting_of_the_backend() -> None:
    """Whoever looks for one finds it here."""
    own = read_settings_file(ROOT / "scripts" / "backends" / "kubernetes.env")
    assert [name for name in own if not re.search(rf"\b{name}\b", PAGE)] == []


def test_its_number_is_the_codes() -> None:
    """How much code fits into a Secret."""
    assert f"holds {MOST_CODE_BYTES:,} bytes" in PAGE
    assert f"{MOST_CODE_BYTES} fit" in (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def test_it_can_be_read_in_one_go() -> None:
    """As long as the longest chapter that people read."""
    assert len(USERS.splitlines()) <= 345
