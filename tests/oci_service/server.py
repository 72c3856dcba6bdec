"""The service itself: what it does with the requests of clients, and with those of who has started it."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import secrets
import sys
import threading
import time
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from oci_service import asked, domains
from oci_service.access import Access
from oci_service.bastion import Bastions
from oci_service.certificates import Authority
from oci_service.containers import Containers
from oci_service.data_science import DataScience
from oci_service.faults import Controls, Dropped
from oci_service.image_registry import HOST, ImageRegistry
from oci_service.lateness import Lateness
from oci_service.logs import Logs
from oci_service.object_storage import ObjectStorage
from oci_service.places import Loopback, Machines
from oci_service.proxy import Server
from oci_service.resources import JSON, REGION, Answer, Operation, Refusal, Request, not_found, ocid
from oci_service.room import Room
from oci_service.router import Router
from oci_service.runs import Runner
from oci_service.signatures import Keys, new_key, write_key
from oci_service.tenancy import Tenancy
from oci_service.vault import Vault

NAMESPACE = "stand-in"
BUCKET = "clusters"
_KEPT_HEADERS = {
    "opc-retry-token",
    "opc-request-id",
    "opc-client-request-id",
    "if-match",
    "if-none-match",
    "content-md5",
    "user-agent",
}
# What a job's resource principal may do besides reading itself: use objects, write and search logs, read secrets.
_OF_RUNS = (
    "object_storage.*object*",
    "object_storage.*multipart*",
    "object_storage.upload_part",
    "object_storage.*_bucket",
    "object_storage.get_namespace*",
    "logging*.put_logs",
    "logging*.search_logs",
    "secrets.get_secret_bundle",
)
_NOT_OF_RUNS = {"object_storage.create_bucket", "object_storage.delete_bucket"}


class Service:
    """All state of one service, and what it does with a request."""

    def __init__(self, directory: Path, place: Loopback | Machines | Containers, *, is_empty: bool = False) -> None:
        self.directory = directory
        for name in ("tls", "keys", "runs"):
            (directory / name).mkdir(mode=0o700)
        self.token = secrets.token_hex(16)
        self.controls = Controls()
        self.keys = Keys()
        self.authority = Authority(directory / "tls")
        lock = threading.RLock()
        self._creating = lock
        self.tenancy = Tenancy(self.controls, lock, is_empty=is_empty)
        self.room = Room(self.controls, lock, self.tenancy)
        self.tenancy.identity.add_key = partial(self.keys.add_user, self.tenancy.id)
        check = self.tenancy.check_compartment
        self.logs = Logs(self.controls, lock, self.tenancy.id, check)
        self.vault = Vault(lock, self.tenancy.compartment)
        self.objects = ObjectStorage(directory / "objects", self.controls, NAMESPACE, check)
        self.place = place
        self.server = Server(("127.0.0.1", 0), self)
        self.port: int = self.server.server_address[1]
        servers = [self.server]
        proxy_port = self.port
        if not isinstance(self.place, Loopback):
            listening = self.place.listening_socket()
            proxy_port = listening.getsockname()[1]
            servers.append(Server(("127.0.0.1", 0), self, listening))
        proxy = f"http://{self.place.proxy_address}:{proxy_port}"
        files = (directory / "runs", self.place, self.controls, self.keys, self.logs, self.authority.file)
        self.runner = Runner(*files, self.tenancy.id, proxy, Lateness(self.controls))
        self.science = DataScience(self.controls, lock, self.tenancy, self.logs, self.runner)
        self.bastions = Bastions(directory, self.controls, self.tenancy, lock, place.enter)
        self.access: Access | None = None
        self._policies = Access(self.tenancy.identity, (), self.objects.buckets)  # where none count for users
        self._made: dict[str, str] = {}
        if is_empty:
            self._begin_empty()
        else:
            self._fill()
        self.routers = _routers(self)
        if self.access is not None:
            self._check_table(self.access)
        self._answered: dict[tuple[str, str, str], tuple[bytes, Answer]] = {}
        self._calls: list[JSON] = []
        self._environ = self._make_user(directory)
        for server in servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 60}, daemon=True).start()

    def _fill(self) -> None:
        """Make what a launch needs: a bucket, a log, a subnet."""
        self.objects.add_bucket(BUCKET, self.tenancy.compartment, self.tenancy.user)
        group = {"compartmentId": self.tenancy.compartment, "displayName": "clusters", "lifecycleState": "ACTIVE"}
        log_group = self.logs.groups.add(**group)["id"]
        subnet = self.tenancy.make_network(str(self.place.network))
        self._made = {
            "COMPARTMENT_OCID": self.tenancy.compartment,
            "PROJECT_OCID": self.science.project,
            "SUBNET_OCID": subnet,
            "SUBNET_CIDR": str(self.place.network),
            "BASTION_ID": self.bastions.add(subnet),
            "LOG_GROUP_OCID": log_group,
            "LOG_OCID": self.logs.new_log(log_group, displayName="clusters")["id"],
            "bucket": BUCKET,
            "WORK_DIR": f"oci://{BUCKET}@{NAMESPACE}/work",
        }

    def _begin_empty(self) -> None:
        """Have nothing but the administrator; from now on policies decide."""
        science = self.science
        science._projects.remove(science.project)
        there = [science._projects, science.jobs, science.runs, science._requests, self.logs.groups, self.logs.logs]
        there += [self.vault.secrets, self.bastions.bastions, self.bastions.sessions, *self.room.shelves]
        shelves = [*self.tenancy.shelves, *there]
        self.access = Access(self.tenancy.identity, shelves, self.objects.buckets, lambda: self.controls.flipped)
        self.runner.rights = self.access

    def _check_table(self, access: Access) -> None:
        """Raise where it is not said what an operation needs."""
        there = {name for router in self.routers.values() for name in router.names}
        if missing := there - access.operations:
            raise LookupError(f"permissions.py does not say what these need: {', '.join(sorted(missing))}")

    def _make_user(self, directory: Path) -> dict[str, str]:
        """Make the files that a user of OCI has; return the variables that lead clients to them and to here."""
        key, session = new_key(), new_key()
        write_key(key, directory / "keys" / "api.pem")
        write_key(session, directory / "keys" / "session.pem")
        token_file = directory / "keys" / "session.token"
        token = self.keys.token("session", self.tenancy.user, session.public_key(), 3600, tenant=self.tenancy.id)
        token_file.write_text(token)
        fingerprint = self.keys.add_user(self.tenancy.id, self.tenancy.user, key.public_key())
        common = f"tenancy={self.tenancy.id}\nregion={REGION}\n"
        profiles = {
            "DEFAULT": f"user={self.tenancy.user}\nfingerprint={fingerprint}\nkey_file={directory}/keys/api.pem\n",
            "SESSION": f"fingerprint={fingerprint}\nkey_file={directory}/keys/session.pem\n"
            f"security_token_file={token_file}\n",
        }
        config = directory / "config"
        config.touch(mode=0o600)
        config.write_text("".join(f"[{name}]\n{text}{common}" for name, text in profiles.items()))
        (directory / "oci_cli_rc").touch(mode=0o600)
        proxy = f"http://127.0.0.1:{self.port}"
        return {
            **dict.fromkeys(("OCI_CLI_CONFIG_FILE", "OCI_CONFIG_FILE", "OCIFS_CONFIG_LOCATION"), str(config)),
            "OCI_CLI_RC_FILE": str(directory / "oci_cli_rc"),
            "OCIFS_IAM_TYPE": "api_key",
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
            "REQUESTS_CA_BUNDLE": str(self.authority.file),
        }

    def about(self) -> JSON:
        """Return what who has started the service needs to know."""
        settings = {"TENANCY_OCID": self.tenancy.id, **self._made, "region": REGION, "namespace": NAMESPACE}
        own = {"pid": os.getpid(), "port": self.port, "token": self.token}
        return {**own, "environ": self._environ, "settings": settings}

    # --- Requests of clients

    def serve(self, host: str, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """Return the answer to a request to *host*; None where the connection is to be closed without one."""
        started = time.time()
        path, _, query = target.partition("?")
        call: JSON = {"time": started, "host": host, "operation": "?", "method": method, "path": path, "query": query}
        call["principal"] = None
        answer: Answer | None = None
        try:
            call["operation"], function, names = self.routers[host].find(method, path)
            short = call["operation"].partition(".")[2]
            principal = self.keys.principal(short, method, target, headers, body)
            call["principal"] = f"{principal.kind}:{principal.id}"
            parameters = dict(parse_qsl(query, keep_blank_values=True))
            request = Request(principal, headers, parameters, names, body)
            who, name = "run" if principal.kind == "resource" else "user", names.get("object", parameters.get("prefix"))
            spoilt = self.controls.fault(call["operation"], who, name or "")
            self._authorise(call["operation"], request)
            if short in asked.TAGGED:
                asked.check_tags(request.json(), self.controls.required_tags)
            answer = self._once(call["operation"], function, request)
            if told := self.controls.told.get(short):
                answer = replace(answer, content={**answer.content, **told})
            call["status"] = answer.status
            if spoilt is not None:
                answer = None if spoilt.kind == "drop-after" else replace(answer, torn_s=spoilt.seconds)
        except Refusal as refusal:
            answer = refusal.answer
            call["status"] = answer.status
        except Dropped:
            call["status"] = None
        except Exception:  # noqa: BLE001 - an answer of 500, with what tells why
            sys.stderr.write(traceback.format_exc())
            answer = Answer({"code": "InternalServerError", "message": traceback.format_exc()}, 500)
            call |= {"status": 500, "bug": traceback.format_exc()}
        finally:
            self._record(call, headers, body, is_answered=answer is not None)
        if answer is not None:
            for name in ("opc-request-id", "opc-client-request-id"):
                if name == "opc-request-id" or name in headers:
                    answer.headers[name] = headers.get(name) or secrets.token_hex(16).upper()
        return answer

    def _record(self, call: JSON, headers: dict[str, str], body: bytes, *, is_answered: bool) -> None:
        call["headers"] = {name: headers[name] for name in _KEPT_HEADERS & set(headers)}
        is_json = headers.get("content-type", "").startswith("application/json") and len(body) < 1 << 16
        with contextlib.suppress(ValueError):
            call["body"] = json.loads(body) if is_json and body and "/o/" not in call["path"] else None
        call["size"] = len(body)
        call["is_answered"] = is_answered
        call["duration"] = time.time() - call["time"]
        self._calls.append(call)

    def _authorise(self, operation: str, request: Request) -> None:
        """Refuse what policies do not allow. Where none count, users may do everything, and runs what they need."""
        principal, names = request.principal, request.names
        if self.access is not None:
            self.access.check(principal, operation, request)
            return
        self._policies.check_storage(operation, request)
        if principal.kind != "resource":
            return

        def is_one_of(globs: Any) -> bool:
            return any(fnmatch.fnmatchcase(operation, glob) for glob in globs)

        service, _, short = operation.partition(".")
        is_own = service == "data_science" and self.science.may(principal.id, short, names.get("id", ""))
        is_usual = operation not in _NOT_OF_RUNS and is_one_of(_OF_RUNS)
        if not (is_own or is_usual or is_one_of(self.controls.allow)):
            raise not_found()

    def _once(self, operation: str, function: Operation, request: Request) -> Answer:
        """Return what *function* answers; the same as before to a request that is sent again with its retry token."""
        token = request.headers.get("opc-retry-token")
        if token is None or not request.body:
            return function(request)
        key = (request.principal.id, operation, token)
        digest = hashlib.sha256(request.body).digest()
        with self._creating:
            if key in self._answered:
                if self._answered[key][0] != digest and "token-body" not in self.controls.flipped:
                    text = "The retry token was used in a request with another body"
                    raise Refusal(409, "InvalidatedRetryToken", text)
                return Answer(**{**self._answered[key][1].__dict__, "headers": dict(self._answered[key][1].headers)})
            answer = function(request)
            kept = Answer(json.loads(answer.encoded()) if answer.content else b"", answer.status, dict(answer.headers))
            self._answered[key] = digest, kept
            return answer

    # --- Requests of who has started it

    def control(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return the answer to a request to the control path."""
        if not secrets.compare_digest(headers.get("x-control-token", ""), self.token):
            return Answer({"error": "not the service's token"}, 403)
        path, _, query_text = target.partition("?")
        query = dict(parse_qsl(query_text))
        try:
            found = getattr(self, f"_{method.lower()}_{path.removeprefix('/_/')}")
            return Answer(found(**(json.loads(body) if body else query)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return Answer({"error": f"{type(error).__name__}: {error}"}, 400)

    def _post_control(self, **values: Any) -> JSON:
        if values.pop("rotate_tokens", False):
            for life in list(self.runner.lives.values()):
                life.rotate()
        self.controls.set(values)
        self.keys.ahead_s = self.controls.clock_s
        expired = self.controls.expire_tokens
        kinds = {"session", "resource", "api-key", "all"}
        self.keys.refused = (self.keys.refused - kinds) | ({expired} if expired else set())
        return {}

    def _post_kill(self, run: str, rank: int | None = None) -> JSON:
        self.runner.lives[run].kill(rank)
        return {}

    def _post_push(self, user: str, image: str, about: JSON) -> JSON:
        if self.access is not None:
            try:
                self.access.push(user, image)
            except Refusal as refusal:
                raise ValueError(f"denied: requested access to {image}: {refusal}") from None
        self.controls.set({"images": {image: about}})
        return {}

    def _post_resource_principal(self, kind: str, compartment: str) -> JSON:
        resource = ocid(kind)
        directory = self.directory / "keys" / resource
        directory.mkdir(mode=0o700)
        key = new_key()
        write_key(key, directory / "key.pem")
        claims = {"res_tenant": self.tenancy.id, "res_compartment": compartment, "res_id": resource, "res_type": kind}
        (directory / "rpst").write_text(self.keys.token("resource", resource, key.public_key(), 3600, **claims))
        return {
            "OCI_CLI_AUTH": "resource_principal",
            "OCI_RESOURCE_PRINCIPAL_VERSION": "2.2",
            "OCI_RESOURCE_PRINCIPAL_RPST": str(directory / "rpst"),
            "OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM": str(directory / "key.pem"),
            "OCI_RESOURCE_PRINCIPAL_REGION": REGION,
        }

    def _post_statements(self, statements: list[str]) -> JSON:
        self.tenancy.identity.replace_statements(statements)
        return {}

    def _post_secret(self, content: str) -> str:
        return self.vault.add(content.encode())

    def _get_denials(self) -> list[JSON]:
        return self.access.denials if self.access else []

    def _get_calls(self, since: str = "0") -> list[JSON]:
        return self._calls[int(since) :]

    def _get_jobs(self) -> list[JSON]:
        return self.science.jobs.all()

    def _get_job_runs(self) -> list[JSON]:
        return self.science.runs.all()

    def _get_bastion_sessions(self) -> list[JSON]:
        return self.bastions.all()

    def _get_objects(self, prefix: str = "", bucket: str = BUCKET) -> list[str]:
        return [name for name in self.objects.buckets[bucket].names if name.startswith(prefix)]

    def _get_object(self, name: str, bucket: str = BUCKET) -> bytes:
        return self.objects.buckets[bucket].objects[name].file.read_bytes()

    def _get_log(self, run: str) -> list[JSON]:
        return self.runner.lives[run].printed

    def _get_pids(self, run: str) -> list[int]:
        return self.runner.lives[run].pids()

    def close(self) -> None:
        """End every run, and every connection of a bastion."""
        self.bastions.close()
        self.runner.close()


def _routers(service: Service) -> dict[str, Router]:
    """Return the operations of each host."""
    domain = f"{REGION}.oci.oraclecloud.com"
    network = [*service.tenancy.network_routes(), *service.room.compute_routes()]
    return {
        f"datascience.{domain}": Router("data_science", service.science.routes()),
        f"objectstorage.{REGION}.oraclecloud.com": Router("object_storage", service.objects.routes()),
        f"iaas.{REGION}.oraclecloud.com": Router("virtual_network", network),
        f"identity.{domain}": Router("identity", service.tenancy.identity.routes()),
        domains.HOST: Router("identity_domains", service.tenancy.identity.domains.routes()),
        f"identity.{REGION}.oraclecloud.com": Router("identity", service.tenancy.identity.routes()),
        f"bastion.{domain}": Router("bastion", service.bastions.routes()),
        f"artifacts.{domain}": Router("artifacts", service.tenancy.registry_routes(NAMESPACE)),
        f"limits.{domain}": Router("limits", service.room.limits_routes()),
        HOST: Router("registry", ImageRegistry(service.controls, service.keys, service.tenancy, NAMESPACE).routes()),
        f"logging.{domain}": Router("logging", service.logs.routes()),
        f"secrets.vaults.{domain}": Router("secrets", service.vault.routes()),
        f"ingestion.logging.{domain}": Router("logging_ingestion", service.logs.ingestion_routes()),
    }
