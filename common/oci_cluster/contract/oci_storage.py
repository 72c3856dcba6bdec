"""How this package opens ``oci://`` URLs."""

from __future__ import annotations

from typing import Any

# Seconds to connect, and between two bytes of an answer. An agent that waits sees nothing else meanwhile.
_TIMEOUTS_S = (5, 15)


def configure(**identity: Any) -> None:
    """Have ``oci://`` URLs opened so that every request is answered, or fails, soon.

    The SDK's own retries go on for ten minutes, and its circuit breaker refuses requests that nobody has tried. Who
    waits for storage here has a loop of its own, in which it also looks at other things.

    Args:
        identity: ocifs' own ``config``, ``signer`` and ``region``; without, it is the one that ocifs finds: on a Job
            Run its resource principal.
    """
    import fsspec.config  # noqa: PLC0415 - with the file systems that follow
    from oci.circuit_breaker import NoCircuitBreakerStrategy  # noqa: PLC0415 - a quarter of a second, where it is needed
    from oci.retry import NoneRetryStrategy  # noqa: PLC0415

    options = fsspec.config.conf.setdefault("oci", {})
    options.update(identity)
    options["config_kwargs"] = {
        "retry_strategy": NoneRetryStrategy(),
        "circuit_breaker_strategy": NoCircuitBreakerStrategy(),
        "timeout": _TIMEOUTS_S,
        **options.get("config_kwargs", {}),
    }


# What ocifs takes for a file that is not there, and is a bucket that this identity does not see.
_NO_BUCKET = {"BucketNotFound", "NamespaceNotFound", "NotAuthorizedOrNotFound"}


def refusal(error: BaseException) -> str:
    """Return what to do where *error*, "no such file" by its type, is the service's "no such bucket, or not for you".

    Empty for a file that is not there. The service does not tell the two apart in what it answers to HEAD; but then
    ocifs lists.
    """
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "code", "") in _NO_BUCKET:
            return (
                "make the bucket (oci os bucket create), or allow it: allow dynamic-group <the runs'> to manage objects"
                " in compartment <its name> where target.bucket.name = '<its name>'; a user's group likewise"
            )
        cause = cause.__cause__
    return ""
