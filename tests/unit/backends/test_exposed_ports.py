"""EXPOSE on every backend: which nodes are told, what is opened for it, and what is only said."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube import schemas
from unit.backends.docker_place import DockerPlace
from unit.backends.kubernetes_place import KubernetesPlace
from unit.backends.local_place import LocalPlace
from unit.backends.oci_place import OciPlace
from unit.backends.places import Base
from unit.fake_engine import after

from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError

PLACES = {"local": LocalPlace, "docker": DockerPlace, "oci": OciPlace, "kubernetes": KubernetesPlace}
Make = Callable[[str], Any]


@pytest.fixture
def make(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return what makes a place where nothing runs yet."""
    made: list[Base] = []

    def new(name: str) -> Base:
        made.append(PLACES[name](tmp_path, clock, monkeypatch))
        return made[-1]

    yield new
    for place in made:
        place.close()


def placed(place: Any, **settings: str) -> Plan:
    place.settings |= settings
    plan: Plan = place.backend.place(place.plan("mine", 2), place.said.append)
    return plan


@pytest.mark.parametrize("name", PLACES)
def test_nodes_and_later_launchers_know_the_ports(make: Make, name: str) -> None:
    """As they were given; a dry run shows them. Containers and pods have a network of their own."""
    place = make(name)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = one.getsockname()[1], other.getsockname()[1]
    text = f"{ports[0]} {ports[1]}"
    plan = placed(place, EXPOSE=text)
    assert text in place.backend.preview(plan, as_json=True)
    cluster = place.lifecycle.launch(place.backend.prepare(plan, place.said.append))
    for node in ("MAIN", "WORKER_1"):
        given = place.given(node)
        assert given["EXPOSE"] == text
        assert given.get("OWN_NETWORK") == ("1" if name in {"docker", "kubernetes"} else None)
    assert place.another().load(cluster).limits.exposed == ports


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("local", {}, "EXPOSE: 1234 is SOME_PORT (1234); leave that port out, which is reached without EXPOSE"),
        ("kubernetes", {"EXPOSE": "7077"}, "EXPOSE: 7077 is EXCHANGE_PORT (7077)"),
        ("local", {"EXPOSE": "1301 1300"}, "EXPOSE: 1301 is OTHER_PORTS (1300:1400), 1300 is OTHER_PORTS (1300:1400)"),
        ("local", {"EXPOSE": "1500", "SOME_PORT": "1500"}, "EXPOSE: 1500 is SOME_PORT (1500)"),
        ("local", {"EXPOSE": "6006 x"}, "EXPOSE: 'x' is not a whole number from 1 to 65535"),
        ("local", {"EXPOSE": "6006,6006"}, "EXPOSE: 6006 stands there twice"),
    ],
)
def test_ports_that_are_taken_or_none_are_refused(make: Make, name: str, more: dict[str, str], said: str) -> None:
    """By name, in one message, before anybody is asked."""
    place = make(name)
    (place.root / "plain" / "settings.env").write_text("SOME_PORT=1234\nOTHER_PORTS=1300:1400\nMIN_WORKERS=1\n")
    with pytest.raises(SettingsError) as caught:
        placed(place, **{"EXPOSE": "1234", **more})
    assert str(caught.value).count(said) == 1
    assert str(caught.value).count("EXPOSE:") == 1


def test_the_engine_publishes_them_for_main_on_this_machine_alone(make: Make) -> None:
    """Beside what PUBLISH names; one port here cannot be two of main's."""
    place = make("docker")
    text = place.backend.preview(placed(place, EXPOSE="6006 9000", PUBLISH="8000:80"), as_json=True)
    main, worker, _ = (words for words in json.loads(text)["commands"] if words[1] == "run")
    assert after(main, "--publish") == ["127.0.0.1:8000:80", "127.0.0.1:6006:6006", "127.0.0.1:9000:9000"]
    assert after(worker, "--publish") == []
    with pytest.raises(SettingsError, match="port 6006 of main that of this machine, and PUBLISH=6006:8787 wants"):
        placed(place, PUBLISH="6006:8787")


def objects(place: Any, **settings: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place.backend.preview(placed(place, **settings), as_json=True))["objects"]
    return found


def names(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["kind"], one["metadata"]["name"].partition("-")[2][8:]) for one in found]


def test_pods_declare_them_and_a_service_is_made_where_one_is_asked_for(make: Make) -> None:
    """Of main alone; else nobody but the cluster's pods may connect."""
    place = make("kubernetes")
    found = objects(place, EXPOSE="6006 9000")
    container = found[-1]["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 6006}, {"containerPort": 9000}]
    usual = [("Secret", ""), ("Secret", "-code"), ("Service", ""), ("NetworkPolicy", "")]
    assert names(found) == [*usual, ("Job", "")]

    found = objects(place, EXPOSE_SERVICE="NodePort")
    assert names(found) == [*usual, ("Service", "-main"), ("NetworkPolicy", "-main"), ("Job", "")]
    service, policy = found[4]["spec"], found[5]["spec"]
    own = found[3]["spec"]["podSelector"]["matchLabels"]
    main = {**own, "batch.kubernetes.io/job-completion-index": "0"}
    assert (service["type"], service["selector"], policy["podSelector"]) == ("NodePort", main, {"matchLabels": main})
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(6006, 6006), (9000, 9000)]
    assert policy["ingress"] == [{"ports": [{"port": port, "protocol": "TCP"} for port in (6006, 9000)]}]
    assert found[3]["spec"]["ingress"][0]["from"]
    assert schemas.faults(place.backend.preview(placed(place), as_json=False)) == []


def test_with_the_machines_network_no_port_is_declared(make: Make) -> None:
    """It would be one of the machine, and two nodes could not be there; nor is loopback the node's own."""
    found = objects(make("kubernetes"), EXPOSE="6006", HOST_NETWORK="1")
    container = found[-1]["spec"]["template"]["spec"]["containers"][0]
    assert "ports" not in container
    assert "OWN_NETWORK" not in [one["name"] for one in container["env"]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"EXPOSE_SERVICE": "LoadBalancer", "EXPOSE": "1"}, "EXPOSE_SERVICE: 'LoadBalancer' is not NodePort"),
        ({"EXPOSE_SERVICE": "NodePort"}, "EXPOSE_SERVICE is for ports of EXPOSE"),
    ],
)
def test_a_service_that_cannot_be_is_refused(make: Make, given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        placed(make("kubernetes"), **given)


def test_a_launch_tells_the_numbers_of_the_service_and_its_end_removes_it(make: Make) -> None:
    """With all that bears the cluster's name, also where nobody owns it."""
    place = make("kubernetes")
    cluster = place.lifecycle.launch(placed(place, EXPOSE="6006", EXPOSE_SERVICE="NodePort"))
    services = place.fake.objects["services"]
    services[f"{cluster.handle}-main"]["spec"]["ports"][0]["nodePort"] = 31234
    plan = placed(place)
    assert place.backend.started(cluster, plan).endswith("; port 6006 of main is 31234 of every machine")
    owners = services[f"{cluster.handle}-main"]["metadata"].pop("ownerReferences")
    assert owners[0]["kind"] == "Job"
    place.lifecycle.stop(cluster)
    place.backend.finish(cluster, place.said.append)
    assert services == {}


def test_oci_says_which_rule_the_network_needs(make: Make) -> None:
    """No rule is made: it is the administrator's."""
    place = make("oci")
    placed(place)
    assert not [line for line in place.said if "EXPOSE" in line]
    placed(place, EXPOSE="6006 9000")
    (said,) = [line for line in place.said if "EXPOSE" in line]
    assert "ingress, TCP, destination ports 6006, 9000, source the CIDR" in said


def test_local_looks_whether_they_are_free(make: Make) -> None:
    """On main's own address."""
    place = make("local")
    main = placed(place).nodes[0].address
    with socket.create_server((main, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"EXPOSE: port {port} of {main} is taken by another program"):
            placed(place, EXPOSE=str(port))
    placed(place, EXPOSE=str(port))
