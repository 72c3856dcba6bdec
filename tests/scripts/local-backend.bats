#!/usr/bin/env bats
# BACKEND=local: what the scripts answer of clusters whose files are there, and what they do to them; what check.sh reports.
# Words, options and limits are in tests/unit/launcher.
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  export BACKEND=local
}
teardown() { end_jobs; }

check() { "${PROJECT}/scripts/check.sh" "$@"; }
list() { "${PROJECT}/scripts/list.sh" "$@"; }
status() { "${PROJECT}/scripts/status.sh" "$@"; }
logs() { "${PROJECT}/scripts/logs.sh" "$@"; }
stop() { "${PROJECT}/scripts/stop.sh" "$@"; }
scale() { "${PROJECT}/scripts/scale.sh" "$@"; }

@test "list: where nothing was launched there is nothing, and nothing is made" {
  run -0 --separate-stderr list
  assert_output "NAME  FRAMEWORK  BACKEND  STATE  EXIT  NODES  AGE"
  assert_stderr ""
  run -0 --separate-stderr list --json --all
  assert_output "[]"
  assert_nothing_started
}

@test "list: shows those that run, and with --all those that have ended too (needs .venv)" {
  use_tools
  add_ended_cluster gone
  add_running_cluster here
  run -0 --separate-stderr list
  assert_equal "${#lines[@]}" 2
  assert_line --index 1 --regexp '^here  dask       local    IN_PROGRESS        2      [0-9]+d$'
  run -0 --separate-stderr list --all
  assert_equal "${#lines[@]}" 3
  assert_line --index 1 --regexp '^gone  dask       local    FAILED       7     2      [0-9]+d$'
  assert_stderr ""
}

@test "status: a cluster that has ended is shown with its nodes, as a table and as JSON (needs .venv)" {
  use_tools
  add_ended_cluster gone
  run -0 --separate-stderr status gone
  assert_line --index 0 --regexp '^gone  dask on local, FAILED with 7, started [0-9]+d ago$'
  assert_line "NODE      ADDRESS    STATE   EXIT  PHASE"
  assert_line "MAIN      127.0.0.1  FAILED  7     ended"
  assert_line "WORKER_1  127.0.0.2  FAILED  7     ended"
  assert_stderr ""
  run -0 --separate-stderr status --json gone
  run -0 from_json '[found["name"], found["exit_code"], len(found["nodes"])]' <<<"${output}"
  assert_output "['gone', 7, 2]"
}

@test "logs: each line stands after its node's name" {
  add_ended_cluster gone
  run -0 --separate-stderr logs gone
  assert_output "\
MAIN     | main one
MAIN     | main two
WORKER_1 | worker one"
  assert_stderr ""
  run -0 --separate-stderr logs --node WORKER_1 gone
  assert_output "WORKER_1 | worker one"
}

@test "logs: Ctrl-C ends -f, and not the cluster" {
  add_running_cluster here
  begin "${PROJECT}/scripts/logs.sh" -f here
  eventually grep -q 'main two' "${BATS_TEST_TMPDIR}/job.out"
  kill -INT -- "-${JOB}"
  finish
  assert_success
  assert_stderr ""
  assert [ ! -e "${PROJECT}/.clusters/here-id-of-here/stop" ]
}

@test "logs: a reader that has seen enough is no error" {
  add_ended_cluster gone
  seq 100000 >"${PROJECT}/.clusters/gone-id-of-gone/logs/MAIN.log"
  # shellcheck disable=SC2016 # bash is to expand it
  run -0 --separate-stderr bash -o pipefail -c '"$0" gone | head -n 1' "${PROJECT}/scripts/logs.sh"
  assert_output "MAIN     | 1"
  assert_stderr ""
}

@test "stop: one that has ended is as good as stopped; --delete removes its files, and those of no other (needs .venv)" {
  use_tools
  add_ended_cluster gone
  add_ended_cluster other
  for words in "gone" "--delete gone"; do
    assert [ -e "${PROJECT}/.clusters/gone-id-of-gone/logs/MAIN.log" ]
    # shellcheck disable=SC2086 # words
    run -0 --separate-stderr stop ${words}
    assert_output gone
    assert_stderr ""
  done
  assert [ ! -e "${PROJECT}/.clusters/gone-id-of-gone" ]
  assert [ -e "${PROJECT}/.clusters/other-id-of-other/logs/MAIN.log" ]
}

# A cluster of which everything says that it runs with one worker.
add_cluster_of_one() { # name
  add_running_cluster "$1"
  "${PYTHON}" - "${PROJECT}/.clusters/$1-id-of-$1" <<'END'
import json, pathlib, sys
directory = pathlib.Path(sys.argv[1])
plan = json.loads((directory / "cluster.json").read_text())
plan["environment"] = {"WORKER_COUNT": "1", "MIN_WORKERS": "1"}
(directory / "cluster.json").write_text(json.dumps(plan))
nodes = [{"node": name, "state": "IN_PROGRESS", "exit_code": None, "pid": 1} for name in ("MAIN", "WORKER_1")]
(directory / "nodes.json").write_text(json.dumps({"runner_pid": None, "nodes": nodes}))
END
}

# Be the runner of a cluster: do what is asked next.
answer_next() { # name
  # shellcheck disable=SC2016 # the text of a script
  help_in_background "${PYTHON}" -c '
import json, os, pathlib, sys, time
directory, deadline = pathlib.Path(sys.argv[1]), time.monotonic() + 120
request = directory / "scale.json"
while not request.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
records = json.loads((directory / "nodes.json").read_text())
records["answer"] = {"id": json.loads(request.read_text())["id"], "error": ""}
(directory / "new").write_text(json.dumps(records))
os.replace(directory / "new", directory / "nodes.json")' "${PROJECT}/.clusters/$1-id-of-$1"
}

@test "scale: how many workers there are now is all that it prints (needs .venv)" {
  use_tools
  add_cluster_of_one here
  answer_next here
  run -0 --separate-stderr scale here +2
  assert_output 3
  assert_stderr "\
scale.sh: WORKER_2 started
scale.sh: WORKER_3 started"
  run -0 from_json 'found["start"], found["end"]' <"${PROJECT}/.clusters/here-id-of-here/scale.json"
  assert_output "[2, 3] []"
}

@test "check: what works is fine, item by item, and nothing is started" {
  use_tools
  mkdir -p "${PROJECT}/.venv/envs/dask/bin"
  ln -s "$(command -v "${PYTHON}")" "${PROJECT}/.venv/envs/dask/bin/python"
  SCHEDULER_PORT=$((20000 + RANDOM % 5000)) DASHBOARD_PORT=$((25000 + RANDOM % 5000)) run -0 --separate-stderr check dask 2
  refute_output --regexp '^(fails|unknown)'
  for item in settings ports 'entry point' Python memory GPUs 'free ports' 'file locks'; do
    assert_line --regexp "^fine +${item} "
  done
  assert_stderr "check.sh: 8 items on local: nothing that was seen will fail"
  assert [ ! -e "${PROJECT}/.clusters" ]
}

@test "check: what will fail is told with what fixes it, all of it at once" {
  use_tools
  run -1 --separate-stderr check dask 2 --entry none.py --ttl soon
  assert_line --partial "fails    entry point       --entry: "
  assert_line "         give the path of your script"
  assert_line --partial "fails    settings          --ttl: 'soon'"
  assert_stderr --partial " will fail"
}
