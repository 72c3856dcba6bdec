"""Client of OCI's services: identity, repeats and refusals.

The SDK that oci-cli brings is used without its own retries: those know nothing of ``retry-after``, and try again for
ten minutes what will never be.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

import oci
import requests
from oci.auth import signers
from oci.circuit_breaker import NoCircuitBreakerStrategy
from oci.retry import NoneRetryStrategy

from oci_cluster.backends.oci.errors import ServiceError, refused
from oci_cluster.backends.oci.tenancy.security_rules import blocks_of
from oci_cluster.contract.storage import oci as oci_storage
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import SettingsError, StoppedError
from oci_cluster.system.files import at_home
from oci_cluster.system.text import first_line, printable

# Seconds to connect, and between two bytes of an answer.
_TIMEOUTS_S = (10, 60)
# How long one request is repeated in all: longer than a passing outage, shorter than anybody waits for a prompt.
# Chosen, not measured: what the real service throttles is not known here.
PATIENCE_S = 180.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0
# How long a request to Object Storage is repeated that somebody waits for: an answer of a busy service comes after some
# tries, and a `stop` file that cannot be written has a second way.
_STORAGE_PATIENCE_S = 20.0
_REPEATED_STATUS = {429, 500, 502, 503, 504}
# What an outcome is not known of: the request may have been done.
_NO_ANSWER = (oci.exceptions.RequestException, oci.exceptions.ConnectTimeout, requests.exceptions.RequestException)

# In what is said where who answers cannot prove to be OCI, which no other try changes.
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_TRUST = (
    "a proxy that answers in OCI's place has an authority of its own: REQUESTS_CA_BUNDLE=<file of its certificate>;"
    " else look at this machine's clock"
)


class _SessionSigner(signers.SecurityTokenSigner):  # type: ignore[misc]
    """Signs with a session's token as its file has it now."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        super().__init__(self._token(), self._key())

    def _token(self) -> str:
        return at_home(self._config["security_token_file"]).read_text().strip()

    def _key(self) -> Any:
        return oci.signer.load_private_key_from_file(self._config["key_file"], self._config.get("pass_phrase"))

    def do_request_sign(self, request: Any, enforce_content_headers: bool = True) -> Any:  # noqa: FBT001, FBT002 - the SDK's
        """Sign *request* with the token that is there now."""
        # Where it is being written, or has a key of no use, OCI says whether the one before is still good.
        with suppress(OSError, ValueError, oci.exceptions.ClientError):
            if (token := self._token()) and f"ST${token}" != self.api_key:
                super().__init__(token, self._key())  # oci-cli writes a new session's key first
        return super().do_request_sign(request, enforce_content_headers)


class Service:
    """OCI's services, for a launcher with the variables of oci-cli in *environ*.

    Once *is_stopped*, what fails is not repeated.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        #: Says who asks; for other processes, too.
        self.environ = environ
        self._is_stopped = is_stopped
        self._is_cleaning_up = False
        self._is_known = False
        #: By the SDK's class.
        self.clients: dict[Any, Any] = {}
        self._clock = clock
        self._sleep = sleep

    @property
    def identity_kind(self) -> str:
        """How the caller is known, as in ``OCI_CLI_AUTH``."""
        return self.environ.get("OCI_CLI_AUTH") or "api_key"

    @cached_property
    def identity(self) -> tuple[dict[str, Any], Any]:
        """The SDK's configuration and signer, by the rules of oci-cli."""
        path = self.environ.get("OCI_CLI_CONFIG_FILE") or oci.config.DEFAULT_LOCATION
        profile = self.environ.get("OCI_CLI_PROFILE") or oci.config.DEFAULT_PROFILE
        kind = self.identity_kind
        region = self.environ.get("OCI_CLI_REGION")
        if kind not in (known := ("api_key", "security_token", "instance_principal", "resource_principal")):
            raise SettingsError(f"OCI_CLI_AUTH is '{kind}'; known are {', '.join(known)}")
        try:
            if kind.endswith("_principal"):
                is_instance = kind == "instance_principal"
                own = (
                    signers.InstancePrincipalsSecurityTokenSigner
                    if is_instance
                    else signers.get_resource_principals_signer
                )
                signer = own()
                return {"region": region or signer.region}, signer
            config = oci.config.from_file(path, profile)
            if region:
                config["region"] = region
            if not config.get("region"):
                raise ValueError("it names no region: set OCI_CLI_REGION, or region= in that profile")
            if kind == "api_key":
                oci.config.validate_config(config)
                return config, None
            return config, _SessionSigner(config)
        # The SDK raises much: files, keys, its own errors, a metadata service that is not there.
        except Exception as error:
            raise SettingsError(
                f"no identity for OCI: OCI_CLI_AUTH={kind}, profile {profile} of {path}: {first_line(error)}; "
                "make one: oci setup config (API key) or oci session authenticate (OCI_CLI_AUTH=security_token)"
            ) from error

    @property
    def region(self) -> str:
        """The region that is asked, such as ``us-ashburn-1``."""
        return str(self.identity[0]["region"])

    def use_for_storage(self) -> None:
        """Have this process open ``oci://`` URLs with the same identity, and repeat their requests."""
        config, signer = self.identity
        oci_storage.configure(
            waiting=Waiting(self._clock, self._sleep, self._is_stopped),
            patience_s=_STORAGE_PATIENCE_S,
            config=dict(config),
            **({"signer": signer, "region": self.region} if signer else {}),
        )

    @property
    def data_science(self) -> Any:
        """The client of Data Science."""
        return self.client_of(oci.data_science.DataScienceClient)

    @property
    def domain(self) -> str:
        """The domain of all services of that region, such as ``oraclecloud.com``."""
        found = oci.regions.endpoint_for("bastion", region=self.region, service_endpoint_template="{secondLevelDomain}")
        return str(found)

    @property
    def bastion(self) -> Any:
        """The client of Bastion."""
        return self.client_of(oci.bastion.BastionClient)

    @property
    def log_search(self) -> Any:
        """OCI Logging's search."""
        return self.client_of(oci.loggingsearch.LogSearchClient)

    @property
    def log_groups(self) -> Any:
        """OCI Logging's groups and logs."""
        return self.client_of(oci.logging.LoggingManagementClient)

    def client_of(self, kind: Any, *endpoint: str) -> Any:
        """Return the client of a service, by the SDK's class and *endpoint*."""
        key = (kind, *endpoint) if endpoint else kind
        if key not in self.clients:
            self.clients[key] = self._client(kind, *endpoint)
        return self.clients[key]

    def _client(self, kind: Any, *endpoint: str) -> Any:
        config, signer = self.identity
        options: dict[str, Any] = {"signer": signer} if signer is not None else {}
        try:
            return kind(
                config,
                *endpoint,
                retry_strategy=NoneRetryStrategy(),
                circuit_breaker_strategy=NoCircuitBreakerStrategy(),
                timeout=_TIMEOUTS_S,
                **options,
            )
        except (oci.exceptions.ClientError, OSError, ValueError) as error:
            raise SettingsError(
                f"the key of this identity cannot be used ({config.get('key_file')}): {first_line(error)}"
            ) from error

    def call(
        self,
        what: str,
        request: Callable[..., Any],
        *args: Any,
        repeat_also: Sequence[str] = (),
        not_seen_until: float = -math.inf,
        patience_s: float = PATIENCE_S,
        **kwargs: Any,
    ) -> Any:
        """Return the response to *request*, repeated while the service is busy, broken or silent.

        Args:
            what: For messages: ``create the Job``.
            request: A method of an SDK client.
            args: Its arguments.
            repeat_also: Codes of refusals that pass by themselves.
            not_seen_until: Until then, of the clock, what has just been made may be unknown.
            patience_s: How long it is repeated.
            kwargs: Named arguments. With ``opc_retry_token`` it is done once, however often it is repeated.

        Raises:
            ServiceError: refused, or not answered.
            StoppedError: it failed, and the launcher has been told to stop.
        """
        deadline = self._clock() + patience_s
        for pause_s in _pauses():
            try:
                response = request(*args, **kwargs)
            except oci.exceptions.ServiceError as error:
                failure = self._refused(what, error, getattr(request, "__name__", ""))
                is_passing = error.status in _REPEATED_STATUS or error.code in repeat_also
                is_passing = is_passing or (failure.is_of_the_unseen and self._clock() < not_seen_until)
                asked_for_s = min(oci_storage.retry_after(error.headers), _LONGEST_PAUSE_S * 3)
            except _NO_ANSWER as error:
                is_passing, asked_for_s = _UNTRUSTED not in str(error), 0.0
                advice = "" if is_passing else f"; {_TRUST}"
                failure = ServiceError(
                    f"cannot {what}: no answer from OCI in {self.region}: {first_line(error)}{advice}"
                )
            else:
                self._is_known = True
                return response
            if not is_passing:
                raise failure
            if self._is_stopped() and not self._is_cleaning_up:
                raise StoppedError(f"stopped while trying again: {failure}") from failure
            if self._clock() >= deadline:
                raise failure
            self._sleep(max(pause_s, asked_for_s))
        raise AssertionError  # _pauses never ends

    def _refused(self, what: str, error: oci.exceptions.ServiceError, operation: str) -> ServiceError:
        # Whoever stands in between answers, too: a proxy with a page of HTML.
        words = str(error.code), printable(" ".join(str(error.message).split()), 1000), error.request_id
        about = {"operation": operation, "identity": self.identity_kind}
        behind_s = _seconds_behind(error.headers)
        return refused(what, int(error.status), *words, **about, was_known=self._is_known, behind_s=behind_s)

    @contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """Repeat requests after a signal, too: they end what this launcher has started."""
        self._is_cleaning_up = True
        try:
            yield
        finally:
            self._is_cleaning_up = False

    def all_pages(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Return the items of all pages of a list."""
        items: list[Any] = []
        page: dict[str, Any] = {}
        while True:
            response = self.call(what, request, *args, **kwargs, **page)
            items += getattr(response.data, "items", response.data)
            if not response.has_next_page:
                return items
            page = {"page": response.next_page}

    def subnet_cidr(self, subnet: str) -> str:
        """Return the blocks of *subnet*, an OCID, with commas between."""
        network = self.client_of(oci.core.VirtualNetworkClient)
        response = self.call(f"look up SUBNET_OCID {subnet}", network.get_subnet, subnet)
        return ",".join(blocks_of(response.data))


def _pauses() -> Iterator[float]:
    """Yield seconds between tries, growing, and spread so that many do not coincide."""
    longest = _FIRST_PAUSE_S
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - no secret
        longest = min(2 * longest, _LONGEST_PAUSE_S)


def _seconds_behind(headers: Mapping[str, str] | None) -> float:
    """Return how far our clock is behind an answer's; 0 without a date."""
    try:
        return parsedate_to_datetime(str((headers or {}).get("date"))).timestamp() - time.time()
    except (TypeError, ValueError):
        return 0.0


def service_environ(settings: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, with what *settings* say of oci-cli's own variables."""
    return {**os.environ, **{key: text for key, text in settings.items() if key.startswith("OCI_CLI_")}}
