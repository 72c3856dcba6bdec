#!/usr/bin/env bats
# scripts/scale.sh: with a backend that starts nothing: the order of its words, and config.env; then what the backend `local` is asked.
# bats file_tags=slow

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}
teardown() { end_jobs; }

scale() { "${PROJECT}/scripts/scale.sh" "$@"; }

# A cluster of the backend stub that runs with one worker.
add_stub_cluster() { # name
  add_ended_cluster "$1" stub
  export STUB_BLOCK=run
}

@test "scale: name and workers count as they were typed" {
  add_stub_cluster "demo"
  scaled() { # workers, output, calls after find
    rm -f "${STUB_DIR}/calls"
    run -0 --separate-stderr scale demo "$1"
    assert_output "$2"
    assert_calls "find${3:+
$3}"
  }
  scaled 3 3 "start WORKER_2 WORKER_3"
  assert_stderr "\
scale.sh: WORKER_2 started
scale.sh: WORKER_3 started"
  add_stub_cluster "demo"
  scaled +2 3 "start WORKER_2 WORKER_3"
  add_stub_cluster "demo"
  scaled 1 1 ""
  assert_stderr ""
}

@test "scale: --backend may stand anywhere, and wins over BACKEND" {
  export BACKEND=cloud
  add_stub_cluster demo
  for words in "--backend stub demo +0" "demo --backend stub +0" "demo +0 --backend stub"; do
    # shellcheck disable=SC2086 # words
    run -0 --separate-stderr scale ${words}
    assert_output 1
  done
}

@test "scale: config.env names the backend" {
  unset BACKEND
  echo 'BACKEND="stub"' >"${PROJECT}/config.env"
  add_stub_cluster demo
  run -0 --separate-stderr scale demo 1
  assert_calls find
}

# --- The backend `local` ----------------------------------------------------------------------------------------------

@test "scale: a cluster that is not there is named, and those that are stay as they are" {
  use_local
  assert_refused 2 "scale.sh: error: there is no cluster 'demo'; known: none" scale demo 3
  add_ended_cluster gone
  assert_error 2 "scale.sh: error: there is no cluster 'demo'; known: gone" scale demo +1
  assert_error 2 "scale.sh: error: there is no cluster '-1'; known: gone" scale -1 gone
  assert [ ! -e "${PROJECT}/.clusters/gone-id-of-gone/scale.json" ]
}

@test "scale: one that has ended is wrong usage, with the next step" {
  use_local
  add_ended_cluster gone
  assert_error 2 "scale.sh: error: gone has ended; launch it again: scripts/launch.sh" scale gone +1
  assert [ ! -e "${PROJECT}/.clusters/gone-id-of-gone/scale.json" ]
}

# The same of one that has ended, of which everything says that it runs with one worker, which can be missed.
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

@test "scale: workers that cannot be are refused with the limits" {
  use_local
  add_cluster_of_one here
  assert_error 2 "scale.sh: error: 0 workers " scale here -1
  assert_error 2 "scale.sh: error: 251 workers " scale here +250
  assert_error 2 "scale.sh: error: '' " scale here ''
  assert [ ! -e "${PROJECT}/.clusters/here-id-of-here/scale.json" ]
}

# Be the runner of a cluster: answer the next request with an error, or with none.
answer_next() { # name, error
  # shellcheck disable=SC2016 # the text of a script
  help_in_background "${PYTHON}" -c '
import json, os, pathlib, sys, time
directory, deadline = pathlib.Path(sys.argv[1]), time.monotonic() + 120
request = directory / "scale.json"
while not request.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
records = json.loads((directory / "nodes.json").read_text())
records["answer"] = {"id": json.loads(request.read_text())["id"], "error": sys.argv[2]}
(directory / "new").write_text(json.dumps(records))
os.replace(directory / "new", directory / "nodes.json")' "${PROJECT}/.clusters/$1-id-of-$1" "$2"
}

@test "scale: how many workers there are now is all that it prints (needs .venv)" {
  use_tools
  use_local
  add_cluster_of_one here
  answer_next here ""
  run -0 --separate-stderr scale here +2
  assert_output 3
  assert_stderr "\
scale.sh: WORKER_2 started
scale.sh: WORKER_3 started"
  run -0 from_json 'found["start"], found["end"]' <"${PROJECT}/.clusters/here-id-of-here/scale.json"
  assert_output "[2, 3] []"
}

@test "scale: where there is no room it says so (needs .venv)" {
  use_tools
  use_local
  add_cluster_of_one here
  answer_next here "2 nodes do not fit"
  assert_error 69 "scale.sh: error: 2 nodes do not fit" scale here 3
}
