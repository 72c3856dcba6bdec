"""The stand-in for OCI, asked by real clients: Object Storage, and the rest of a tenancy."""

from __future__ import annotations

import datetime
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness import wait_until
from oci_user import DIGEST, User

oci = pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")

# --- Object Storage


def test_ocifs_reads_what_it_has_written(user: User) -> None:
    files, work = user.files, user.work
    large = os.urandom(11 << 20)
    files.pipe(f"{work}/a b/ü#1", b"small")
    with files.open(f"{work}/large", "wb") as file:
        file.write(large)
    assert files.cat(f"{work}/a b/ü#1") == b"small"
    assert files.cat(f"{work}/large") == large
    assert {"create_multipart_upload", "upload_part", "commit_multipart_upload"} <= {
        call["operation"].partition(".")[2] for call in user.service.calls()
    }
    with files.open(f"{work}/large") as file:
        file.seek(7 << 20)
        assert file.read(10) == large[7 << 20 :][:10]
    assert files.info(f"{work}/large")["size"] == len(large)
    assert sorted(files.ls(work)) == [f"{work}/a b", f"{work}/large"]
    assert sorted(files.find(work)) == [f"{work}/a b/ü#1", f"{work}/large"]
    with files.open(f"{work}/once", "wb", if_none_match="*") as file:
        file.write(b"first")
    with pytest.raises(OSError, match="exists"), files.open(f"{work}/once", "wb", if_none_match="*") as file:
        file.write(b"second")
    files.copy(f"{work}/once", f"{work}/copy")
    files.rename(f"{work}/once", f"{work}/renamed")
    files.rm(f"{work}/copy")
    files.invalidate_cache()
    assert not files.exists(f"{work}/once")
    assert files.cat(f"{work}/renamed") == b"first"
    with pytest.raises(FileNotFoundError):
        files.cat(f"{work}/copy")
    assert user.service.objects("work/") == ["work/a b/ü#1", "work/large", "work/renamed"]
    assert user.service.object("work/renamed") == b"first"


def test_objects_are_listed_in_pages_and_change_with_their_etag_alone(user: User, tmp_path: Path) -> None:
    client = oci.object_storage.ObjectStorageClient(user.config)
    where = user.settings["namespace"], user.settings["bucket"]
    for name in ("p/1", "p/2", "p/d/3", "p/d/4", "p/e/5"):
        client.put_object(*where, name, b"x")
    page = client.list_objects(*where, prefix="p/", delimiter="/", limit=3).data
    assert ([item.name for item in page.objects], page.prefixes) == (["p/1", "p/2"], ["p/d/"])
    page = client.list_objects(*where, prefix="p/", delimiter="/", start=page.next_start_with).data
    assert ([item.name for item in page.objects], page.prefixes) == ([], ["p/e/"])
    etag = client.head_object(*where, "p/1").headers["etag"]
    client.put_object(*where, "p/1", b"y", if_match=etag)
    with pytest.raises(oci.exceptions.ServiceError) as error:
        client.put_object(*where, "p/1", b"z", if_match=etag)
    assert error.value.status == 412
    with pytest.raises(oci.exceptions.ServiceError, match="UnmatchedContentMD5"):
        client.put_object(*where, "p/1", b"z", content_md5="AAAAAAAAAAAAAAAAAAAAAA==")
    with pytest.raises(oci.exceptions.ServiceError, match="BucketNotFound"):
        client.list_objects(where[0], "other")
    target = tmp_path / "got"
    common = ("-ns", where[0], "-bn", where[1])
    user.cli("os", "object", "get", *common, "--name", "p/1", "--file", str(target))
    assert target.read_bytes() == b"y"


def test_run_uses_objects_until_the_bucket_is_revoked_and_takes_new_tokens(user: User) -> None:
    script = (
        "import os, time, ocifs, fsspec, oci\n"
        f"work = {user.work!r}\n"
        "files = fsspec.filesystem('oci', skip_instance_cache=True)\n"
        "science = oci.data_science.DataScienceClient({}, signer=oci.auth.signers.get_resource_principals_signer())\n"
        "print(science.get_job(os.environ['JOB_OCID']).data.display_name)\n"
        "def refusal(call, *words):\n"
        "    try:\n"
        "        call(*words)\n"
        "    except Exception as error:\n"
        "        return getattr(error, 'code', type(error).__name__)\n"
        "print(refusal(science.create_job_run, {'projectId': '', 'compartmentId': '', 'jobId': ''}), flush=True)\n"
        "files.pipe(f'{work}/step', b'0')\n"
        "while (step := files.cat(f'{work}/go')) == b'0': time.sleep(0.05)\n"
        "print('went on', flush=True)\n"
        "while not (found := refusal(files.info, f'{work}/step')): time.sleep(0.05)\n"
        "print(found)\n"
    )
    user.files.pipe(f"{user.work}/go", b"0")
    run = user.run(user.job(script))
    wait_until(lambda: "work/step" in user.service.objects(), "the run's object")
    before = len(user.service.calls())
    user.service.control({"rotate_tokens": True})
    wait_until(lambda: any(call["status"] == 401 for call in user.service.calls(since=before)), "a refusal")
    user.files.pipe(f"{user.work}/go", b"1")
    user.wait_for("went on", run)
    user.service.control({"revoke_bucket": [user.settings["bucket"]]})
    assert user.service.wait(run)["lifecycleState"] == "SUCCEEDED", user.service.log(run)
    assert user.service.log(run).splitlines() == ["job", "NotAuthorizedOrNotFound", "went on", "FileNotFoundError"]
    assert user.files.cat(f"{user.work}/step") == b"0"  # the user still may


# --- The rest of a tenancy


def test_network_is_there_for_a_check(user: User) -> None:
    compartment = user.settings["COMPARTMENT_OCID"]
    network = oci.core.VirtualNetworkClient(user.config)
    subnet = network.get_subnet(user.settings["SUBNET_OCID"]).data
    assert (subnet.cidr_block, subnet.prohibit_public_ip_on_vnic) == (user.settings["SUBNET_CIDR"], True)
    rules = network.get_security_list(subnet.security_list_ids[0])
    assert [rule.protocol for rule in rules.data.ingress_security_rules] == ["6"]
    details = oci.core.models.UpdateSecurityListDetails(ingress_security_rules=[])
    network.update_security_list(rules.data.id, details, if_match=rules.headers["etag"])
    with pytest.raises(oci.exceptions.ServiceError, match="NoEtagMatch"):
        network.update_security_list(rules.data.id, details, if_match=rules.headers["etag"])
    assert user.cli("network", "subnet", "get", "--subnet-id", subnet.id)["data"]["vcn-id"] == subnet.vcn_id
    answer = user.cli("network", "subnet", "get", "--subnet-id", compartment, code=1)
    assert (answer["status"], answer["code"]) == (404, "NotAuthorizedOrNotFound")

    vcn = network.create_vcn({"compartmentId": compartment, "cidrBlock": "10.0.0.0/16"}).data.id
    inside = {"compartmentId": compartment, "vcnId": vcn}
    rule = {"protocol": "6", "source": "10.0.1.0/24"}
    with pytest.raises(oci.exceptions.ServiceError, match="egressSecurityRules is required"):
        network.create_security_list({**inside, "ingressSecurityRules": [rule]})
    rules = network.create_security_list({**inside, "ingressSecurityRules": [rule], "egressSecurityRules": []}).data.id
    made = network.create_subnet({**inside, "cidrBlock": "10.0.1.0/24", "securityListIds": [rules]}).data.id
    assert [item.id for item in network.list_subnets(compartment, vcn_id=vcn).data] == [made]


def test_identity_and_registry_are_there_for_a_check(user: User) -> None:
    compartment, tenancy = user.settings["COMPARTMENT_OCID"], user.settings["TENANCY_OCID"]
    identity = oci.identity.IdentityClient(user.config)
    policy = identity.create_policy(
        {"compartmentId": compartment, "name": "p", "description": "d", "statements": ["allow"]}
    )
    assert [item.name for item in identity.list_policies(compartment).data] == ["p"]
    identity.delete_policy(policy.data.id)
    assert identity.list_policies(compartment).data == []
    group = {"compartmentId": tenancy, "name": "g", "description": "d", "matchingRule": "all {}"}
    identity.create_dynamic_group(group)
    with pytest.raises(oci.exceptions.ServiceError, match="AlreadyExists"):
        identity.create_dynamic_group(group)
    assert [item.name for item in identity.list_dynamic_groups(tenancy).data] == ["g"]
    assert identity.get_compartment(compartment).data.lifecycle_state == "ACTIVE"
    assert identity.list_region_subscriptions(tenancy).data[0].region_name == user.settings["region"]
    artifacts = oci.artifacts.ArtifactsClient(user.config)
    details = {"compartmentId": compartment, "displayName": "stand-in/python"}
    repository = artifacts.create_container_repository(details).data.id
    assert [item.id for item in artifacts.list_container_repositories(compartment).data.items] == [repository]
    assert [image.digest for image in artifacts.list_container_images(compartment).data.items] == [DIGEST]
    artifacts.delete_container_repository(repository)


def test_logs_are_made_written_and_searched(user: User) -> None:
    compartment = user.settings["COMPARTMENT_OCID"]
    logging = oci.logging.LoggingManagementClient(user.config)
    log = logging.get_log(user.settings["LOG_GROUP_OCID"], user.settings["LOG_OCID"])
    assert log.data.lifecycle_state == "ACTIVE"
    work = logging.create_log_group({"compartmentId": compartment, "displayName": "mine"})
    work = logging.get_work_request(work.headers["opc-work-request-id"]).data
    group = work.resources[0].identifier
    assert (work.status, logging.get_log_group(group).data.display_name) == ("SUCCEEDED", "mine")
    logging.create_log(group, {"displayName": "mine", "logType": "CUSTOM"})
    log = logging.list_logs(group).data[0].id
    at = datetime.datetime.now(datetime.timezone.utc)
    times = [(at + datetime.timedelta(milliseconds=number)).isoformat() for number in range(3)]
    entries = [{"id": str(number), "data": f"line {number}", "time": times[number]} for number in range(3)]
    batch = {"entries": entries, "source": "here", "type": "mine", "defaultlogentrytime": at.isoformat()}
    ingestion = oci.loggingingestion.LoggingClient(user.config)
    ingestion.put_logs(log, {"specversion": "1.0", "logEntryBatches": [batch]})
    search = oci.loggingsearch.LogSearchClient(user.config)
    hour = datetime.timedelta(hours=1)

    def found(where: str, **options: Any) -> Any:
        query = f'search "{compartment}/{group}" | where {where} | sort by datetime desc'
        details = {"timeStart": (at - hour).isoformat(), "timeEnd": (at + hour).isoformat(), "searchQuery": query}
        return search.search_logs(details, **options)

    def texts(answer: Any) -> list[str]:
        return [row.data["logContent"]["data"]["message"] for row in answer.data.results]

    assert len(wait_until(lambda: texts(found("source = 'here'")), "the lines")) == 3
    assert texts(found("type = 'm*' and data.message != '*1'")) == ["line 2", "line 0"]
    assert texts(found("type = 'mine' and data.message = '*1' or data.message = '*2'")) == ["line 2", "line 1"]
    assert texts(found("source = 'there'")) == []
    with pytest.raises(oci.exceptions.ServiceError, match="begin it with"):
        found("source = 'ocid1.datasciencejobrun.oc1..a'")
    page = found("source = 'here'", limit=2)
    assert texts(found("source = 'here'", limit=2, page=page.headers["opc-next-page"])) == ["line 0"]
    logging.delete_log(group, log)
    logging.delete_log_group(group)


def test_hundred_clients_are_served_at_a_time(user: User) -> None:
    user.service.control({"faults": [{"operation": "get_namespace", "kind": "latency", "seconds": 1.0}]})
    client = oci.object_storage.ObjectStorageClient(user.config)
    with ThreadPoolExecutor(100) as pool:
        started = time.monotonic()
        found = list(pool.map(lambda _: client.get_namespace().data, range(100)))
    assert set(found) == {user.settings["namespace"]}
    assert time.monotonic() - started < 50  # one after the other, they would take 100
