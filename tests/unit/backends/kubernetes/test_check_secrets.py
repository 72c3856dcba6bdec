"""What check.sh finds of Secrets and claims."""

from __future__ import annotations

from typing import Any

import pytest
from unit.backends.kubernetes.check_api import NAMESPACE, Api, Launch
from unit.backends.kubernetes.fake_api import forbidden

CLAIMS = f"{NAMESPACE}/persistentvolumeclaims"


def test_a_pull_secret_is_there(api: Api, launch: Launch) -> None:
    """Else what makes it is told. Its login is nobody's to read here."""
    make = "kubectl -n mine create secret docker-registry ocir --docker-server=<registry> "
    ((verdict, text, fix),) = launch.item("pull secret", IMAGE_PULL_SECRETS="ocir")
    assert (verdict, text, fix.startswith(make)) == ("fails", "there is no Secret ocir in namespace mine", True)
    api.objects[f"{NAMESPACE}/secrets/ocir"] = {"metadata": {"name": "ocir"}}
    assert launch.item("pull secret", IMAGE_PULL_SECRETS="ocir") == [("fine", "ocir is there", "")]


def test_a_secret_of_variables_is_there(api: Api, launch: Launch) -> None:
    ((verdict, _, fix),) = launch.item("Secret", ENV_SECRETS="mine")
    assert (verdict, fix) == ("fails", "kubectl -n mine create secret generic mine --from-env-file=mine.env")
    api.objects[f"{NAMESPACE}/secrets/mine"] = {"metadata": {"name": "mine"}}
    assert launch.item("Secret", ENV_SECRETS="mine") == [("fine", "mine is there", "")]


@pytest.mark.parametrize(
    ("claim", "storage_class", "verdict", "text"),
    [
        (None, None, "fails", "VOLUMES: there is no PersistentVolumeClaim 'data' in namespace mine"),
        ({"phase": "Bound"}, None, "fine", "claim data is bound, ReadWriteMany"),
        ({"phase": "Bound", "modes": ["ReadWriteOnce"]}, None, "fails", "the claim 'data' is ReadWriteOnce, which one"),
        ({"class": ""}, None, "unknown", "claim data is Pending and names no storage class"),
        ({}, None, "fails", "claim data is Pending: there is no StorageClass fss"),
        ({}, {"volumeBindingMode": "WaitForFirstConsumer"}, "fine", "claim data gets its volume of fss with its first"),
        ({}, {"volumeBindingMode": "Immediate"}, "unknown", "claim data is Pending: fss has given it no volume yet"),
    ],
)
def test_a_claim_can_be_mounted_by_all_and_gets_storage(
    api: Api, launch: Launch, *, claim: Any, storage_class: Any, verdict: str, text: str
) -> None:
    """Its access mode, its storage class, and whether that has given it a volume."""
    if claim is not None:
        spec = {"accessModes": claim.get("modes", ["ReadWriteMany"]), "storageClassName": claim.get("class", "fss")}
        status = {"phase": claim.get("phase", "Pending")}
        api.objects[f"{CLAIMS}/data"] = {"metadata": {"name": "data"}, "spec": spec, "status": status}
    if storage_class is not None:
        api.objects["/apis/storage.k8s.io/v1/storageclasses/fss"] = {"metadata": {"name": "fss"}, **storage_class}
    ((found, told, _),) = launch.item("storage", VOLUMES="data=pvc:data secret=secret:other")
    assert (found, text in told) == (verdict, True), told


@pytest.mark.parametrize(("kind", "word"), [("secrets", "secret"), ("configmaps", "configmap")])
def test_what_a_volume_mounts_is_there_or_named(api: Api, launch: Launch, kind: str, word: str) -> None:
    volumes = f"keys={word}:keys"
    ((verdict, told, way),) = launch.item("volume", VOLUMES=volumes)
    assert (verdict, way) == ("fails", "make it, or leave it out of VOLUMES")
    assert "there is no" in told
    api.objects[f"/api/v1/namespaces/mine/{kind}/keys"] = {"metadata": {"name": "keys"}}
    assert launch.item("volume", VOLUMES=volumes)[0][0] == "fine"


def test_what_may_not_be_looked_at_is_not_known_to_be_there(api: Api, launch: Launch) -> None:
    api.refusals["GET /api/v1/namespaces/mine/secrets/keys"] = forbidden("get", "secrets", "")
    ((verdict, told, _),) = launch.item("volume", VOLUMES="keys=secret:keys")
    assert (verdict, told.startswith("you may not look at it: ")) == ("unknown", True)
