# Nodes under test that live whole lives with an injected clock, and a main's view of the others.

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.fake_cluster import MakeNode, Node, make_project
from unit.fake_follower import Follower
from unit.node.fake_lives import Launch
from unit.node.fake_members import Cluster
from unit.node.served_main import Served


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with one framework and the user's code."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return make_project(tmp_path)


@pytest.fixture
def main(root: Path) -> Node:
    """Return the main node of a cluster of 1 + 2, whose start script runs until the test ends it."""
    return Node(root)


@pytest.fixture
def worker(root: Path) -> Node:
    """Return the second worker of that cluster."""
    return Node(root, MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")


@pytest.fixture
def make(root: Path) -> MakeNode:
    """Return a function that makes a node."""

    def make(**environ: str) -> Node:
        return Node(root, **environ)

    return make


@pytest.fixture
def follower(make: MakeNode) -> Follower:
    """Return the second worker of a gang."""
    return Follower(make)


@pytest.fixture
def cluster(root: Path) -> Cluster:
    """Return a cluster of 1 + 2 in which one worker can be missed."""
    return Cluster(root, MIN_WORKERS="1")


@pytest.fixture
def launch(make: MakeNode) -> Launch:
    """Return a launch of several lives without nodes."""
    return Launch(make)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what nodes and others have opened: a process does that by its end."""
    opened: list[socket.socket] = []
    create = socket.create_connection

    def note(*args: Any, **named: Any) -> socket.socket:
        opened.append(create(*args, **named))
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", note)
    yield
    for each in opened:
        each.close()


@pytest.fixture
def served(connections: None) -> Iterator[Served]:
    found = Served()
    yield found
    found.coordinator.close()


@pytest.fixture
def ending(connections: None) -> Served:
    """Return a main that a test ends."""
    return Served()
