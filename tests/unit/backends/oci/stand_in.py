"""The stand-in for OCI in this process: requests of the SDK and of oci-cli are calls, so a tenancy costs no socket."""

from __future__ import annotations

import email.utils
import functools
import io
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import oci
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa
from oci._vendor import requests
from oci_cli import dynamic_loader
from oci_cli.cli import cli
from oci_cli.service_mapping import service_mapping
from oci_service import logs, server
from oci_service.places import Loopback
from oci_service.resources import Principal

from oci_cluster.backends.oci import setup
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT

HOME, ELSEWHERE = "us-ashburn-1", "us-phoenix-1"
REGISTRY = "iad.ocir.io/stand-in/training"
WORK_DIR = "oci://clusters@stand-in/team-a/work"
# Making a key, reading it, and signing each request with one of the size that OCI takes, take longer than all else.
_KEY = functools.cache(lambda make=rsa.generate_private_key, **_: make(public_exponent=65537, key_size=1024))
_READ = functools.cache(oci.signer.load_private_key)


# A service's commands are loaded when the first of them is run.
_load = functools.cache(dynamic_loader.load_service)


class StandIn:
    """A tenancy in which policies count, with compartments, a private subnet and nothing else of clusters.

    *before* hears of each command of oci-cli before it runs, *after* when it has ended; they may raise what ends
    setup. In another region than the home region nobody may change identity.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[Sequence[str]], Any] = lambda _: None
        self.after: Callable[[Sequence[str]], Any] = lambda _: None
        self.late = 0  # how many looks later what was made is seen
        self._late: dict[str, list[Any]] = {}
        quiet = SimpleNamespace(server_address=("127.0.0.1", 1), serve_forever=lambda **_: None)
        patch.setattr(server, "Server", lambda *_: quiet)
        patch.setattr(rsa, "generate_private_key", _KEY)
        patch.setattr(logs.Logs, "_collect", lambda _: None)  # no run prints anything
        self.service = server.Service(directory, Loopback(), is_empty=True)
        self.tenancy, self.identity = self.service.tenancy, self.service.tenancy.identity
        self.environ = {**self.service._environ, "HTTPS_PROXY": "", "https_proxy": "", "REQUESTS_CA_BUNDLE": ""}
        patch.setattr(requests.adapters.HTTPAdapter, "send", lambda _, request, **__: self._send(request))
        patch.setattr(oci.retry.retry, "time", SimpleNamespace(time=time.time, sleep=lambda _: None))
        patch.setattr(oci.signer, "load_private_key", _READ)
        patch.setattr(requests.utils, "getproxies", dict)
        patch.setattr(setup, "subprocess", SimpleNamespace(run=self._oci, DEVNULL=None))
        patch.setitem(setup.Setup.__init__.__kwdefaults__, "sleep", lambda _: None)
        self.root = self.identity.id
        self.jobs, self.network, self.images, self.other = (
            self.identity.add_compartment(name) for name in ("jobs", "network", "images", "other")
        )
        self.subnet = self._subnet(self.network)
        self.settings = {
            "COMPARTMENT_OCID": self.jobs,
            "IMAGES_COMPARTMENT_OCID": self.images,
            "SUBNET_OCID": self.subnet,
            "WORK_DIR": WORK_DIR,
            "REGISTRY": REGISTRY,
            "KEEP_CLUSTERS_DAYS": "30",
        }

    def _subnet(self, compartment: str) -> str:
        self.tenancy.compartment = compartment
        made = self.tenancy.make_network("10.0.0.0/20")
        (rules,) = self.tenancy.security_lists.all()
        self.tenancy.security_lists.touch(rules, ingressSecurityRules=[], egressSecurityRules=[])
        return made

    # --- What clients send

    def _send(self, request: Any) -> Any:
        url = urlsplit(request.url)
        target, host = f"{url.path}?{url.query}" if url.query else url.path, str(url.hostname)
        headers = {name.lower(): text for name, text in request.headers.items()}
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else body.read()
        is_change = request.method in {"POST", "PUT", "DELETE"}
        if ELSEWHERE in host and host.startswith("identity") and is_change:
            pytest.fail(f"identity is changed in another region than the home region: {request.method} {target}")
        answer = self._answer(host.replace(ELSEWHERE, HOME), request.method, target, headers, body)
        if answer is None:
            raise requests.exceptions.ConnectionError("the connection is closed")
        response = requests.Response()
        response.status_code, response.request, response.url = answer.status, request, request.url
        date = email.utils.formatdate(time.time() + self.service.keys.ahead_s, usegmt=True)
        response.headers.update({"content-type": "application/json", "date": date, **answer.headers})
        response.raw = io.BytesIO(answer.encoded())
        return response

    def _answer(self, host: str, method: str, target: str, headers: dict[str, str], body: bytes) -> Any:
        """Return what the service answers, or has answered *late* looks ago."""
        answer = self.service.serve(host, method, target, headers, body)
        if method != "GET" or not self.late or not isinstance(answer.content, (list, dict)):
            return answer
        seen = self._late.setdefault(f"{host}{target}", [])
        seen.append(answer)
        return seen[max(0, len(seen) - 1 - self.late)]

    def _oci(self, words: Sequence[str], env: Mapping[str, str], **_: Any) -> Any:
        self.before(words)
        _load(next(word for word in words if word in service_mapping))
        done = CliRunner().invoke(cli, list(words[1:]), env=dict(env))
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.after(words)
        return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.output)

    # --- What is done, and what there is then

    def setup(self, *options: str, say: Callable[[str], None] = lambda _: None, **more: str) -> list[str]:
        """Run setup.sh for Dask; return what it shows."""
        shown: list[str] = []
        given = {**self.settings, **more}
        setup.run(["dask"], dict.fromkeys(options, ()), given, PROJECT_ROOT, show=shown.append, say=say)
        return shown

    def user(self, *groups: str) -> Principal:
        """Return a new user in these groups, OCIDs."""
        user = self.identity.users.add(compartmentId=self.root, name=f"user{len(self.identity.users.all())}")["id"]
        for group in groups:
            self.identity._memberships.add(userId=user, groupId=group, lifecycleState="ACTIVE", compartmentId=self.root)
        return Principal("api-key", user, "")

    def config_of(self, user: str) -> str:
        """Return the path of a config file of oci-cli for *user*, an OCID, whose key is the administrator's."""
        home = Path(self.service._environ["OCI_CLI_CONFIG_FILE"])
        config = home.with_name(user)
        config.touch(mode=0o600)
        config.write_text(home.read_text().replace(f"user={self.tenancy.user}", f"user={user}"))
        (key, *_) = self.service.keys._users.values()
        self.service.keys.add_user(self.root, user, key)
        return str(config)

    def allow(self, *statements: str, name: str = "theirs", **more: Any) -> str:
        """Make a policy of somebody in the root compartment."""
        fields = {"compartmentId": self.root, "lifecycleState": "ACTIVE", "statements": list(statements), **more}
        made: dict[str, Any] = self.identity.policies.add(**fields, name=name)
        self.identity._read(self.identity.policies, made)
        return str(made["id"])

    def changes(self) -> list[str]:
        """Return the requests so far that change something, and were done."""
        return [
            call["operation"]
            for call in self.service._calls
            if call["method"] in {"POST", "PUT", "DELETE", "PATCH"} and (call["status"] or 500) < 300
        ]
