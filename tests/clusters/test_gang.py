"""Clusters whose nodes all run the entry point: first causes, gangs that start again, nodes that come and go."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from harness import Launch, Project

# Says what it is given, then does what the test's actions say: {(node, attempt): statement}; the rest wait for `go`.
ENTRY = """
import os, sys, time
node, attempt = os.environ["NODE_NAME"], int(os.environ["ATTEMPT"])
print("begin", node, attempt, os.environ["ROLE_INDEX"], os.environ["WORKER_ADDRESSES"], flush=True)
open(f"began-{{node}}-{{attempt}}", "w").close()
exec({actions!r}.get((node, attempt), "pass"))
"""
ALL_BEGAN = "all(os.path.exists(f'began-{n}-{attempt}') for n in ('MAIN', 'WORKER_1', 'WORKER_2'))"
UNTIL_ALL_BEGAN = f"while not {ALL_BEGAN}: time.sleep(0.02)\n"
UNTIL_GO = "while not os.path.exists('go'): time.sleep(0.02)\n"
SOON = {"HEARTBEAT_INTERVAL": "0.5", "HEARTBEAT_TIMEOUT": "20"}


def launch_gang(project: Project, workers: int, actions: dict[tuple[str, int], str], **environ: str) -> Launch:
    """Start a cluster of the framework `gang`, whose nodes do what *actions* say of a node and an attempt."""
    entry = project.write("entry.py", ENTRY.format(actions=actions) + UNTIL_GO)
    return project.launch("gang", str(workers), "--entry", entry, "--python", sys.executable, **{**SOON, **environ})


def address_of(launch: Launch, node: str) -> str:
    """Return the address that *node* got: which ones are free depends on the clusters beside it."""
    nodes = json.loads((launch.directory / "cluster.json").read_bytes())["nodes"]
    return str({entry["node"]: entry["environment"]["NODE_ADDRESS"] for entry in nodes}[node])


def test_first_cause_is_the_clusters_code_and_named(project: Project) -> None:
    """Rank 2 ends with 9; the others end with 1 just before it, as peers of a lost connection do."""
    # All begin together: failures that are more than 2 s apart are not of one moment.
    lost_peer, late = UNTIL_ALL_BEGAN + "sys.exit(1)", UNTIL_ALL_BEGAN + "time.sleep(0.4); sys.exit(9)"
    actions = {("MAIN", 0): lost_peer, ("WORKER_1", 0): lost_peer, ("WORKER_2", 0): late}
    launch = launch_gang(project, 2, actions)
    assert launch.wait() == 9
    assert "ended with 9 (WORKER_2: begin WORKER_2 0 1 " in launch.err
    assert {node["exit_code"] for node in launch.nodes().values()} == {9}
    launch.assert_nothing_left()


def test_node_that_hangs_is_named(project: Project) -> None:
    """All but one end with an exception: the one that does not is what they waited for."""
    # Main waits for reports as long as the attempt ran: on a busy machine one takes seconds.
    lost_peer = UNTIL_ALL_BEGAN + "time.sleep(15); sys.exit(1)"
    launch = launch_gang(project, 2, {("MAIN", 0): lost_peer, ("WORKER_1", 0): lost_peer})
    assert launch.wait() == 1
    assert re.search(r"; WORKER_2 had not failed \d+ s later", launch.err)


def test_gang_starts_again_together_until_restarts_are_used_up(project: Project) -> None:
    """Every node of every attempt begins, in order; the code is that of the last failure."""
    actions = {("WORKER_1", 0): UNTIL_ALL_BEGAN + "sys.exit(5)", ("MAIN", 1): UNTIL_GO + "sys.exit(6)"}
    launch = launch_gang(project, 2, actions, MAX_RESTARTS="1")
    for node in ("WORKER_1", "WORKER_2"):
        launch.wait_for(f"begin {node} 1", node)
    project.go()
    assert launch.wait() == 6
    assert re.search(r"restart 1 of 1: WORKER_1: .*; exit code 5", launch.log("MAIN"))
    for node in ("MAIN", "WORKER_1", "WORKER_2"):
        assert re.findall(rf"^begin {node} (\d)", launch.log(node), re.MULTILINE) == ["0", "1"]
    launch.assert_nothing_left()


def test_killed_node_is_done_without_then_replaced_then_one_is_added_and_ended(project: Project) -> None:
    """A cluster's whole life of change: each time all that are there begin together, with the same addresses."""
    launch = launch_gang(project, 2, {}, MIN_WORKERS="1", MAX_RESTARTS="1")
    launch.wait_for("begin WORKER_2 0 1", "WORKER_2")
    name = launch.directory.name.rpartition("-")[0]

    launch.kill_agent("WORKER_1")
    launch.wait_for(f"begin WORKER_2 1 0 {address_of(launch, 'WORKER_2')}\n", "WORKER_2")
    launch.wait_for("restart 1 of 1: WORKER_1 failed first: no heartbeat for")

    scaled = project.run("scale", name, "+1")
    assert (scaled.returncode, scaled.stdout) == (0, "2\n")
    launch.wait_for("begin WORKER_1 2 0", "WORKER_1")  # the lost one's rank, an address of its own
    launch.wait_for("begin WORKER_2 2 1", "WORKER_2")

    assert project.run("scale", name, "3").stdout == "3\n"
    launch.wait_for("begin WORKER_3 3 2", "WORKER_3")
    assert "WORKER_3  127.0.0." in project.run("status", name).stdout

    assert project.run("scale", name, "-1").stdout == "2\n"
    for node in ("MAIN", "WORKER_1", "WORKER_2"):
        launch.wait_for(f"begin {node} 4 ", node)
    refused = project.run("scale", name, "0")
    assert refused.returncode == 2
    assert "choose 1 to 250" in refused.stderr

    project.go()
    assert launch.wait() == 0
    assert "WORKER_1 ended with 137 (killed by SIGKILL)" in launch.err
    assert "WORKER_3 has left" in launch.err
    addresses = {re.findall(r"begin \w+ 4 \d (\S*)", launch.log(node))[0] for node in ("MAIN", "WORKER_1", "WORKER_2")}
    assert len(addresses) == 1
    launch.assert_nothing_left()
    assert project.run("scale", name, "+1").returncode == 2


def test_facts_of_every_node_reach_main_and_mains_reach_the_others(project: Project) -> None:
    """What node-facts.sh prints, as files of NODES_DIR; nothing of it in the environment."""
    show = (
        "directory = os.environ['NODES_DIR']\n"
        "print([(name, open(f'{directory}/{name}').read()) for name in sorted(os.listdir(directory))], flush=True)"
    )
    launch = launch_gang(project, 1, {("MAIN", 0): show, ("WORKER_1", 0): show})
    launch.wait_for("hello", "WORKER_1")
    project.go()
    assert launch.wait() == 0
    main, worker = (
        f"('{node}', 'rank={rank}\\naddress={address_of(launch, node)}\\nfact_greeting=hello from {node}\\n')"
        for rank, node in enumerate(("MAIN", "WORKER_1"))
    )
    assert worker in launch.log("MAIN")
    assert f"[{main}]" in launch.log("WORKER_1")


def test_node_that_cannot_find_its_facts_ends_with_their_code(project: Project, checkout_copy: Path) -> None:
    """Main ends with the facts script's own code before any entry point has run."""
    script = checkout_copy / "gang" / "node-facts.sh"
    text = script.read_text()
    try:
        script.write_text("#!/usr/bin/env bash\nexit 78\n")
        launch = launch_gang(project, 1, {})
        assert launch.wait() == 78
    finally:
        script.write_text(text)
    assert "node-facts.sh ended: exit code 78" in launch.err
    assert "begin" not in launch.out


def test_check_live_proves_from_inside_that_nodes_reach_each_other(project: Project) -> None:
    """Two nodes run the proof, whatever script was named; nothing of them is left."""
    entry = project.write("entry.py", "print('mine')")
    done = project.run("check", "gang", "3", "--entry", entry, "--python", sys.executable, "--live", "--json")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    proofs = [one["text"] for one in json.loads(done.stdout)["findings"] if one["item"] == "live"]
    assert [re.sub(r"\d+$", "PORT", text) for text in proofs[:2]] == [
        "from MAIN to WORKER_1: ANY_PORT PORT",
        "from WORKER_1 to MAIN: ANY_PORT PORT",
    ]
    assert len(proofs) == 3
    assert "mine" not in done.stderr
    assert project.cluster_dirs() == []
