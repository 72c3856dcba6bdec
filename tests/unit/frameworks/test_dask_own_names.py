"""dask/preload/own_names.py: which requests are answered. tests/clusters asks real servers."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "dask" / "preload" / "own_names.py"
OWN = {"localhost", "node7"}
GIVEN = {"dask.example.org"}


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module, without Dask and Tornado."""
    modules = {
        "distributed": [],
        "distributed.http": [],
        "distributed.http.routing": ["RoutingApplication"],
        "tornado": [],
        "tornado.httputil": ["HTTPServerRequest"],
        "tornado.web": ["RequestHandler"],
    }
    for name, classes in modules.items():
        module = ModuleType(name)
        for each in classes:
            setattr(module, each, type(each, (), {"find_handler": None}))
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("dask_preload_own_names", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "host",
    [
        *("localhost:8787", "LocalHost", "localhost.", "node7:8787", "dask.example.org", "127.0.0.9:8787"),
        *("10.0.0.5:8787", "203.0.113.7", "[::1]:8787"),
    ],
)
def test_own_names_and_all_addresses_are_answered(own_names: ModuleType, host: str) -> None:
    assert own_names.is_allowed(host, None, OWN, GIVEN)
    assert own_names.is_allowed(host, f"http://{host}", OWN, GIVEN)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example:8787", "127.0.0.1.evil.example", "localhost.evil.example", "node7.evil.example", "xnode7"),
        *("evil.example@localhost.evil.example", "", ":8787", "[::1", "127.1.", "sub.dask.example.org", "0x7f.1"),
    ],
)
def test_names_of_others_are_refused(own_names: ModuleType, host: str) -> None:
    """Also those that begin or end like one's own, and what is no name at all."""
    assert not own_names.is_allowed(host, None, OWN, GIVEN)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost", "http://localhost:8888", "null", "", "http://[", "localhost:8787"],
)
def test_pages_of_others_are_refused(own_names: ModuleType, origin: str) -> None:
    """Another port is another server."""
    assert not own_names.is_allowed("localhost:8787", origin, OWN, GIVEN)


def test_page_of_a_given_name_is_answered_behind_a_proxy_that_changes_the_host(own_names: ModuleType) -> None:
    assert own_names.is_allowed("10.0.0.5:8787", "https://dask.example.org", OWN, GIVEN)
    assert not own_names.is_allowed("10.0.0.5:8787", "https://node7", OWN, GIVEN)


def test_names_are_the_machines_and_the_users(own_names: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """No DNS; an empty setting gives no name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Node7.subnet.example")
    assert own_names.own_names() == {"localhost", "node7", "node7.subnet.example"}
    monkeypatch.setattr(socket, "gethostname", str)
    assert own_names.own_names() == {"localhost"}
    assert own_names.given_names() == set()
    monkeypatch.setenv("DASHBOARD_HOSTS", " Dask.example.org,,other ")
    assert own_names.given_names() == {"dask.example.org", "other"}
