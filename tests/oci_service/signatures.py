"""Who signed a request: API keys, session tokens of users, and resource principals of job runs."""

from __future__ import annotations

import base64
import binascii
import email.utils
import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from oci_service.resources import Principal, Refusal

SKEW_S = 300.0
# The registry's operations, which take a token of its own instead of a signature.
_WITH_TOKEN = {"get_manifest", "get_blob"}
# Bodies that clients stream and do not sign.
UNSIGNED_BODIES = {"put_object", "upload_part", "create_job_artifact"}
_BODY_HEADERS = {"content-length", "content-type", "x-content-sha256"}
_FIELD = re.compile(r'(\w+)="([^"]*)"')


def new_key() -> rsa.RSAPrivateKey:
    """Return a key of the only kind that OCI takes."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def write_key(key: rsa.RSAPrivateKey, path: Path) -> None:
    """Write a private key as OCI's tools want it: with a label that says what it is for."""
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.touch(mode=0o600)
    path.write_bytes(pem + b"OCI_API_KEY\n")


def fingerprint(key: rsa.RSAPublicKey) -> str:
    """Return an API key's fingerprint, by which it is known."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.md5(der, usedforsecurity=False).digest().hex(":")


def not_authenticated(message: str = "") -> Refusal:
    """Return the answer for every signature that is not right."""
    text = "The required information to complete authentication was not provided or was incorrect."
    return Refusal(401, "NotAuthenticated", message or text)


class Keys:
    """The public keys that the service knows, and the key that it signs tokens with."""

    def __init__(self) -> None:
        self._own = new_key()
        self._users: dict[str, rsa.RSAPublicKey] = {}
        self._tokens: dict[str, tuple[rsa.RSAPublicKey, dict[str, Any]]] = {}
        self.bearers: dict[str, Principal] = {}  # who has which token of the registry
        self.refused: set[str] = set()  # kinds of principals, or tokens, that are refused from now on
        self.ahead_s = 0.0  # how far the clock is ahead of this machine's

    def add_user(self, tenancy: str, user: str, key: rsa.RSAPublicKey) -> str:
        """Take a user's API key; return its fingerprint."""
        print_ = fingerprint(key)
        self._users[f"{tenancy}/{user}/{print_}"] = key
        return print_

    def token(self, kind: str, subject: str, key: rsa.RSAPublicKey, lifetime_s: float, **claims: str) -> str:
        """Return a token that says whose *key* is; *kind* is ``session`` or ``resource``."""
        issued = int(time.time())
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key))
        payload = {
            "iss": "authService.oracle.com",
            "jti": secrets.token_hex(8),
            "sub": subject,
            "ptype": {"session": "user", "resource": "resource"}[kind],
            "iat": issued,
            "exp": issued + int(lifetime_s),
            "jwk": json.dumps({name: public[name] for name in ("kty", "n", "e")}),
            **claims,
        }
        return jwt.encode(payload, self._own, algorithm="RS256", headers={"kid": "stand-in"})

    def _of_token(self, token: str) -> tuple[rsa.RSAPublicKey, Principal]:
        if token not in self._tokens:
            try:
                claims = jwt.decode(token, self._own.public_key(), algorithms=["RS256"])
                key = jwt.algorithms.RSAAlgorithm.from_jwk(claims["jwk"])
            except (jwt.InvalidTokenError, KeyError, ValueError):
                raise not_authenticated() from None
            assert isinstance(key, rsa.RSAPublicKey)
            self._tokens[token] = key, claims
        key, claims = self._tokens[token]
        kind = "resource" if claims["ptype"] == "resource" else "session"
        if time.time() >= claims["exp"] or self.refused & {kind, "all", token}:
            raise not_authenticated()
        return key, Principal(kind, claims["sub"], token, _about_resource(claims) if kind == "resource" else {})

    def principal(self, operation: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Principal:
        """Return who signed a request, or refuse it."""
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        if scheme == "Bearer" and operation in _WITH_TOKEN and rest in self.bearers:
            return self.bearers[rest]
        fields = dict(_FIELD.findall(rest))
        if scheme != "Signature" or fields.get("algorithm") != "rsa-sha256" or fields.get("version") != "1":
            raise not_authenticated()
        key_id = fields.get("keyId", "")
        if key_id.startswith("ST$"):
            key, principal = self._of_token(key_id.removeprefix("ST$"))
        elif key_id in self._users and "api-key" not in self.refused:
            key, principal = self._users[key_id], Principal("api-key", key_id.split("/")[1], key_id)
        else:
            raise not_authenticated()
        signed = fields.get("headers", "").split()
        date = "x-date" if "x-date" in signed else "date"
        needed = {date, "(request-target)", "host"}
        if method in {"POST", "PUT", "PATCH"} and operation not in UNSIGNED_BODIES:
            needed |= _BODY_HEADERS
            if headers.get("x-content-sha256") != base64.b64encode(hashlib.sha256(body).digest()).decode():
                raise not_authenticated()
        if not needed <= set(signed) or not needed - {"(request-target)"} <= set(headers):
            raise not_authenticated()
        _check_date(headers[date], time.time() + self.ahead_s)
        lines = []
        for name in signed:
            value = f"{method.lower()} {target}" if name == "(request-target)" else headers.get(name)
            lines.append(f"{name}: {value}")
        try:
            signature = base64.b64decode(fields.get("signature", ""), validate=True)
            key.verify(signature, "\n".join(lines).encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, binascii.Error):
            raise not_authenticated() from None
        return principal


def _about_resource(claims: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what the matching rule of a dynamic group can ask about the resource that a token is of."""
    names = {"res_type": "resource.type", "res_id": "resource.id", "res_compartment": "resource.compartment.id"}
    return {name: str(claims[claim]) for claim, name in names.items() if claim in claims}


def _check_date(date: str, now_s: float) -> None:
    try:
        skew = abs(email.utils.parsedate_to_datetime(date).timestamp() - now_s)
    except ValueError:
        raise not_authenticated() from None
    if skew > SKEW_S:
        current = email.utils.formatdate(now_s, usegmt=True)
        raise not_authenticated(f"Date '{date}' is not within allowed clock skew. Current '{current}'")
