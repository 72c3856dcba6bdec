# What a person calls a port, and the URL under which it answers here.

from __future__ import annotations

import pytest

from oci_cluster.errors import UsageError
from oci_cluster.launcher.connect.connect import Port, parse_port, url_here

KNOWN = {"dashboard": 8787, "task-queue": 1234, "jupyter": 8888}


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("dashboard", Port(8787, None, "dashboard")),
        ("8787", Port(8787, None, "dashboard")),
        ("6006", Port(6006)),
        ("7000:6006", Port(6006, 7000)),
        ("7000:jupyter", Port(8888, 7000, "jupyter")),
    ],
)
def test_a_port_is_a_name_or_a_number_and_one_of_ones_own(text: str, port: Port) -> None:
    assert parse_port(text, KNOWN) == port


@pytest.mark.parametrize("text", ["notebook", "0", "65536", "a:6006", "6006:", ":6006x", "1:2:3", "dashboard:8787"])
def test_what_is_no_port_is_named_with_those_that_there_are(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--port {text}: .*of this cluster \\(dashboard, jupyter, task-queue\\)"):
        parse_port(text, KNOWN)


def test_a_url_has_scheme_and_path_of_what_main_says_of_its_port() -> None:
    facts = {
        "dashboard": "http://10.0.0.5:8787/status",
        "scheduler": "tls://10.0.0.5:8786",
        "connect": "DASK_CONFIG=/x",
        "bad": "http://[::1:8787",
        "worse": "http://h:999999/",
    }
    assert url_here("127.0.0.1", 9000, 8787, facts) == "http://127.0.0.1:9000/status"
    assert url_here("127.0.0.1", 9000, 8786, facts) == "tls://127.0.0.1:9000"
    assert url_here("127.0.0.1", 9000, 6006, facts) == "http://127.0.0.1:9000/"
