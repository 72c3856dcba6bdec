"""Secrets of OCI Vault: what they hold, for who may read them. Tests put them there."""

from __future__ import annotations

import base64
import threading

from oci_service.resources import JSON, Answer, Request, Route, Shelf


class Vault:
    """The secrets of a tenancy, with their one version each."""

    def __init__(self, lock: threading.RLock, compartment: str) -> None:
        self.secrets = Shelf("vaultsecret", lock)
        self._compartment = compartment

    def add(self, content: bytes) -> str:
        """Make a secret, and return its OCID."""
        encoded = base64.b64encode(content).decode()
        return str(self.secrets.add(compartmentId=self._compartment, lifecycleState="ACTIVE", content=encoded)["id"])

    def routes(self) -> list[Route]:
        """Return the operations."""
        return [("GET", "/20190301/secretbundles/{secret}", "get_secret_bundle", self._bundle)]

    def _bundle(self, request: Request) -> Answer:
        secret = self.secrets.get(request.names["secret"])
        content: JSON = {"contentType": "BASE64", "content": secret["content"]}
        return Answer({"secretId": secret["id"], "versionNumber": 1, "secretBundleContent": content})
