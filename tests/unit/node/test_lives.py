"""Lives of one launch, main's part: what is left of one decides nothing in the next."""

from __future__ import annotations

import hmac
import signal

import pytest
from unit.fake_cluster import FOR_EVER_S, KEY, LAUNCH, MakeNode, messages
from unit.node.fake_lives import ONE, TWO, Launch, OtherMain, Workers, lead_earlier, of, term

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import read_stop
from oci_cluster.contract.names import CERTIFICATE, LIFE, READY, STOP, config_file, exit_file, heartbeat_file

pytestmark = pytest.mark.usefixtures("empty_memory")


# --- TERM ------------------------------------------------------------------------------------------------------------


def test_term_interrupts_main(launch: Launch) -> None:
    """It ends in order, and says how; it does not say that the cluster is over."""
    main = launch.main()
    term(main, 10.0)
    assert main.run() == 143
    said = main.read(exit_file("MAIN"))
    assert (said["reason"], said["interrupted"]) == ("interrupted: MAIN was told to end by signal 15", True)
    assert (main.read(STOP), main.read(heartbeat_file("MAIN"))["phase"]) == ({}, "interrupted")
    assert (main.children.ended, len(main.children.uploads)) == (main.children.scripts, 1)


def test_term_is_the_end_where_nobody_has_said_more(make: MakeNode) -> None:
    """As before: main tells the others to stop."""
    main = make()
    main.ready_at_once()
    term(main, 10.0)
    assert (main.run(), main.read(STOP)["exit_code"], "interrupted" in main.read(exit_file("MAIN"))) == (
        143,
        143,
        False,
    )
    assert main.read(LIFE) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_another_signal_is_the_end(launch: Launch, number: int) -> None:
    """A Ctrl-C of somebody who sits there."""
    main = launch.main()
    main.world.at(10.0, lambda: setattr(main.world, "received", number))
    assert (main.run(), main.read(STOP)["exit_code"]) == (143, 143)


def test_a_stop_that_comes_with_term_is_obeyed(launch: Launch) -> None:
    """stop.sh leaves the file, and the service sends TERM."""
    main = launch.main(POLL_CEILING="600", HEARTBEAT_INTERVAL="600", HEARTBEAT_TIMEOUT="2000")

    def stop() -> None:
        main.files.publish(STOP, reason="stopped by stop.sh", exit_code=143)
        main.world.received = signal.SIGTERM

    main.world.at(700.0, stop)
    assert main.run() == 143
    assert (main.read(exit_file("MAIN"))["reason"], "interrupted" in main.read(exit_file("MAIN"))) == (
        "stopped by stop.sh",
        False,
    )


def test_a_main_that_has_succeeded_when_term_comes_says_so(launch: Launch) -> None:
    """Its outputs are complete: nothing is left for another life."""
    main = launch.main()

    def both() -> None:
        main.children.codes[main.children.scripts[0]] = 0
        main.world.received = signal.SIGTERM

    main.world.at(10.0, both)
    assert (main.run(), main.read(STOP)["exit_code"], main.read(exit_file("MAIN"))["exit_code"]) == (0, 0, 0)


# --- Main begins a life ----------------------------------------------------------------------------------------------


def test_main_begins_the_next_life(launch: Launch) -> None:
    """Another id, the next number; what an earlier main has left is gone, and scripts have another key."""
    main = launch.main()
    lead_earlier(main, ended={"interrupted": True}).publish(STOP, reason="r", exit_code=0)
    ready = main.seen_at(0.5, lambda: main.read(READY))
    main.children.on_start = lambda _: None  # not ready
    term(main, 5.0)
    assert (main.run(), main.read(LIFE)["number"], ready) == (143, 2, [{}])
    life = main.read(LIFE)["life"]
    assert life not in {ONE, ""}
    for name in (config_file("MAIN"), heartbeat_file("MAIN"), exit_file("MAIN")):
        assert main.read(name)["life"] == life
    given = main.children.environ()
    assert given["LIFE"] == "2"
    assert given["LAUNCH_KEY"] == hmac.digest(KEY.encode(), f"life {life}".encode(), "sha256").hex()


def test_a_third_life_follows_the_second(launch: Launch) -> None:
    """Each is interrupted; each has its own id."""
    lives = []
    for number in (1, 2, 3):
        main = launch.main()
        main.world.now = 100.0 * number
        term(main, 100.0 * number + 5)
        assert (main.run(), main.read(LIFE)["number"]) == (143, number)
        lives.append(main.read(LIFE)["life"])
    assert len({*lives}) == 3


@pytest.mark.parametrize("node", ["MAIN", "WORKER_1"])
def test_a_launch_that_is_over_has_no_other_life(launch: Launch, node: str) -> None:
    """Main has come to its end in order: whoever is started again ends as that has."""
    again = launch.node(int(node == "WORKER_1"))
    earlier = lead_earlier(again, ended={})
    earlier.publish(STOP, reason="the entry point ended", exit_code=7)
    assert (again.run(), again.children.scripts) == (7, [])


def test_a_main_that_finds_its_launch_over_leaves_what_tells_so(launch: Launch) -> None:
    """A worker that is started a moment later than main has to find it."""
    again = launch.main()
    earlier = lead_earlier(again, ended={})
    earlier.publish(STOP, reason="the entry point ended", exit_code=7)
    assert again.run() == 7
    worker = launch.node(1)
    assert (worker.run(), worker.world.now) == (7, 0.0)


@pytest.mark.parametrize("is_mains_exit_there", [False, True])
def test_a_main_that_was_cut_off_in_its_end_begins_again(launch: Launch, *, is_mains_exit_there: bool) -> None:
    """It has said that the cluster is over, and nobody knows whether its outputs are safe."""
    main = launch.main()
    earlier = lead_earlier(main, ended={"interrupted": True} if is_mains_exit_there else None)
    earlier.publish(STOP, reason="the entry point ended", exit_code=3)
    main.child_ends(0, at=5.0)
    assert (main.run(), main.read(STOP)["exit_code"], len(main.children.scripts)) == (0, 0, 1)


def test_a_stop_of_the_launch_ends_all_lives(launch: Launch) -> None:
    """It came while nobody ran."""
    main = launch.main()
    lead_earlier(main, ended={"interrupted": True})
    main.files.publish(STOP, reason="stopped by stop.sh", exit_code=143)
    assert (main.run(), main.children.scripts) == (143, [])


def test_late_words_of_the_life_before_count_for_nothing(launch: Launch, caplog: pytest.LogCaptureFixture) -> None:
    """A worker, and a main, that still end when the next main has begun; with clocks ahead of its own."""
    main = launch.main(MIN_WORKERS="2")
    earlier = lead_earlier(main)
    earlier._signer._wall_clock_ns = lambda: int((main.world.wall_clock() + 3600) * 1e9)

    def speak() -> None:
        for node in ("WORKER_1", "WORKER_2"):
            earlier.publish(config_file(node), node=node, address="10.9.9.9")
            earlier.publish(heartbeat_file(node), beat=1, phase="ready", attempt=0)
            earlier.publish(exit_file(node), exit_code=9, reason="x", attempt=0, time=1.0, has_left=True)
        earlier.publish(STOP, reason="old", exit_code=9)
        earlier.publish(exit_file("MAIN"), exit_code=9, reason="old", attempt=0, time=1.0, has_left=True)

    main.world.at(20.0, speak)
    main.child_ends(0, at=200.0)
    assert (main.run(), main.read(STOP)["exit_code"]) == (0, 0)
    assert not messages(caplog, "WORKER_1", "WORKER_2")


def test_files_of_the_life_before_are_not_read_again_and_again(launch: Launch) -> None:
    """Once each, and once more where they have changed."""
    main = launch.main()
    earlier = lead_earlier(main)
    for node in ("WORKER_1", "WORKER_2"):
        earlier.publish(config_file(node), node=node, address="10.9.9.9")
        earlier.publish(exit_file(node), exit_code=9, reason="x", attempt=0, time=1.0, has_left=True)
    asked = main.requests()
    main.child_ends(0, at=200.0)
    assert main.run() == 0
    assert (asked.count(exit_file("WORKER_1")), asked.count(config_file("WORKER_2"))) == (1, 1)


def test_a_main_gives_way_to_another_one(launch: Launch) -> None:
    """The service has started it twice: the later one leads."""
    main = launch.main()
    main.world.at(20.0, lambda: of(main, TWO).publish(LIFE, number=9, answers={}))
    main.child_ends(0, at=200.0)
    assert (main.run(), main.read(STOP), main.world.now < 30) == (143, {}, True)
    assert main.read(exit_file("MAIN"))["reason"].startswith("interrupted: another main has begun life 9")


def test_a_life_file_that_somebody_removes_is_there_again(launch: Launch) -> None:
    """Nodes that come later need it."""
    main = launch.main()
    main.world.at(20.0, lambda: main.files.remove(LIFE))
    seen = main.seen_at(25.0, lambda: main.read(LIFE).get("number"))
    main.child_ends(0, at=30.0)
    assert (main.run(), seen) == (0, [1])


# --- Interrupted nodes, seen from main -------------------------------------------------------------------------------


@pytest.mark.parametrize(("back_at", "code"), [(100.0, 0), (FOR_EVER_S, 76)])
def test_main_waits_for_an_interrupted_node_that_it_needs(launch: Launch, back_at: float, code: int) -> None:
    """For TIMEOUT; who is not back then is lost, and that is no stop by request."""
    main = launch.main(MIN_WORKERS="2", TIMEOUT="120")
    workers = Workers(main)
    workers.interrupt("WORKER_1", at=20.0, back_at=back_at)
    main.child_ends(0, at=300.0)
    assert main.run() == code
    assert (main.world.now >= 140) == (code == 76 or main.world.now >= 300)


def test_a_failure_that_comes_with_an_interruption_begins_another_life(launch: Launch) -> None:
    """The entry point has lost a peer: all begin again, and nothing says that the cluster has failed."""
    main = launch.main(MIN_WORKERS="2")
    workers = Workers(main)
    main.child_ends(1, at=20.0)
    workers.interrupt("WORKER_1", at=21.0, back_at=60.0)
    main.child_ends(0, at=100.0, attempt=1)
    assert (main.run(), main.read(LIFE)["number"]) == (0, 2)
    assert [main.children.environ(attempt)["LIFE"] for attempt in (0, 1)] == ["1", "2"]


def test_a_node_that_is_back_soon_has_been_interrupted_all_the_same(launch: Launch) -> None:
    """Its peers notice later than it is started again."""
    main = launch.main(MIN_WORKERS="2")
    Workers(main).interrupt("WORKER_1", at=20.0, back_at=22.0)
    main.child_ends(1, at=30.0)
    main.child_ends(0, at=100.0, attempt=1)
    assert (main.run(), main.read(LIFE)["number"]) == (0, 2)


def test_a_gang_begins_again_with_an_interrupted_node_that_it_needs(launch: Launch) -> None:
    """In the same life: main has gone on."""
    main = launch.main(GANG="1", MIN_WORKERS="2")
    workers = Workers(main)
    workers.interrupt("WORKER_1", at=20.0, back_at=60.0, attempt=1)
    begun = main.seen_at(58.0, lambda: len(main.children.scripts))
    main.child_ends(0, at=100.0, attempt=1)
    assert (main.run(), main.read(LIFE)["number"], begun) == (0, 1, [1])
    assert main.children.environ(1)["WORKER_ADDRESSES"] == "10.0.0.2,10.0.0.3"


def test_an_interrupted_parameter_server_is_awaited(launch: Launch) -> None:
    """The cluster cannot do without it, however many workers there are."""
    main = launch.main(PS_COUNT="1")
    workers = Workers(main, "PS_3")
    workers.interrupt("PS_3", at=20.0, back_at=60.0)
    main.child_ends(0, at=100.0)
    assert main.run() == 0


def test_each_life_has_a_certificate_of_its_own(launch: Launch) -> None:
    """Also where main begins the next life by itself."""
    main = launch.main(MIN_WORKERS="2", CLUSTER_TLS="1")
    workers = Workers(main)
    main.child_ends(1, at=20.0)
    workers.interrupt("WORKER_1", at=21.0, back_at=60.0)
    seen = [main.seen_at(moment, lambda: main.read(CERTIFICATE)) for moment in (15.0, 90.0)]
    main.child_ends(0, at=100.0, attempt=1)
    assert main.run() == 0
    [first], [second] = seen
    assert first["life"] != second["life"] == main.read(LIFE)["life"]
    assert first["key"] != second["key"]
    assert main.read(CERTIFICATE) == {}


def test_a_main_that_gives_way_leaves_the_others_certificate(launch: Launch) -> None:
    """It is of another life."""
    main = launch.main(CLUSTER_TLS="1")

    def lead() -> None:
        of(main, TWO).publish(LIFE, number=9, answers={})
        of(main, TWO).publish(CERTIFICATE, certificate="c", key="k")

    main.world.at(20.0, lead)
    assert (main.run(), main.read(CERTIFICATE)["life"]) == (143, TWO)


def test_a_failure_that_is_followed_by_mains_own_term_is_an_interruption(launch: Launch) -> None:
    """The entry point has lost its peers a second before main was told to end."""
    main = launch.main()
    main.child_ends(1, at=20.0)
    term(main, 21.0)
    assert (main.run(), main.read(STOP), main.read(exit_file("MAIN"))["interrupted"]) == (143, {}, True)


def test_a_failure_alone_is_a_failure(launch: Launch) -> None:
    """Three seconds later than without INTERRUPTIBLE."""
    main = launch.main()
    Workers(main)
    main.child_ends(7, at=20.0)
    assert (main.run(), main.read(STOP)["exit_code"], main.world.now < 25) == (7, 7, True)


def test_an_interruption_of_long_ago_explains_no_failure(launch: Launch) -> None:
    """Else a cluster that fails for its own reasons would begin again and again."""
    main = launch.main(MIN_WORKERS="1")
    Workers(main).interrupt("WORKER_1", at=20.0)
    main.child_ends(7, at=200.0)
    assert (main.run(), main.read(LIFE)["number"]) == (7, 1)


# --- The rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_start_by_is_for_the_first_life(launch: Launch, rank: int) -> None:
    """A queue may give a cluster its machines again days later."""
    node = launch.node(rank, START_BY="2020-01-01T00:00:00Z")
    lead_earlier(node).remove(config_file("MAIN"))  # main was interrupted before it had told
    if rank:
        OtherMain(node)
    term(node, 20.0)
    assert (node.run(), len(node.children.scripts)) == (143, 1)


def test_outputs_of_the_life_before_are_there_before_the_script_runs(launch: Launch) -> None:
    """Brought back by a process of its own; where that fails, the node does not begin without them."""
    main = launch.main()
    term(main, 20.0)
    assert main.run() == 143
    commands = [command[3] if "oci_cluster" in command else "script" for command, _, _ in main.children.started]
    assert commands == ["fetch-outputs", "script", "upload-outputs"]
    failing = launch.main()
    failing.children.fetch_code = 69
    assert (failing.run(), failing.children.scripts) == (69, [])


def test_a_private_directory_of_a_killed_node_is_no_obstacle(launch: Launch) -> None:
    """On the same machine; nothing of it is in the new one."""
    main = launch.main()
    main.node_dir.mkdir()
    (main.node_dir / "ready").touch()
    main.children.on_start = lambda _: None
    seen = main.seen_at(30.0, (main.node_dir / "ready").exists)
    term(main, 40.0)
    assert (main.run(), seen) == (143, [False])


def test_read_stop_believes_main_of_the_current_life_alone(launch: Launch) -> None:
    """For who is of no life yet."""
    main = launch.main()
    earlier = lead_earlier(main, ended={})
    earlier.publish(STOP, reason="r", exit_code=3)
    fresh = ClusterDir(main.settings.cluster_url, LAUNCH, KEY)
    assert (read_stop(fresh) or {})["exit_code"] == 3
    of(main, TWO).publish(LIFE, number=2, answers={})
    assert read_stop(fresh) is None
