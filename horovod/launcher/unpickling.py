"""What main's launcher unpickles: plain data, and the two answers that ranks give. A pickle of others may run anything.

Horovod's elastic driver unpickles what comes to its rendezvous server, and what answers at the address that came there,
signed with the key that came there: whoever reaches the server would have main run what they like.
"""

from __future__ import annotations

import io
import pickle
from types import SimpleNamespace
from typing import Any

import cloudpickle
from horovod.runner.common.util import codec, network

_ANSWERS = {(network.__name__, "PingResponse"), (network.__name__, "AckResponse")}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ANSWERS:
            msg = f"{module[:50]}.{name[:50]} is not what ranks send"
            raise pickle.UnpicklingError(msg)
        return super().find_class(module, name)


def loads(pickled: bytes) -> Any:
    """Return the data that is *pickled*.

    Raises:
        pickle.UnpicklingError: there is something else in it, which has not been run.
    """
    return _DataUnpickler(io.BytesIO(pickled)).load()


def take_data_only() -> None:
    """Have Horovod's own code unpickle in this process as ``loads`` does."""
    for module in (codec, network):
        module.cloudpickle = SimpleNamespace(dumps=cloudpickle.dumps, loads=loads)
