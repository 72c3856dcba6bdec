#!/usr/bin/env bats
# scripts/scale.sh: its command line, with a backend that starts nothing; then what the backend `local` is asked.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}
teardown() { end_jobs; }

scale() { "${PROJECT}/scripts/scale.sh" "$@"; }

@test "scale: the header comment is the help" {
  assert_help scale.sh
}

@test "scale: a wrong command line asks nobody for anything" {
  assert_usage_error "expected NAME WORKERS, got 0 of them" scale.sh
  assert_usage_error "expected NAME WORKERS, got 1 of them" scale.sh demo
  assert_usage_error "expected NAME WORKERS, got 1 of them" scale.sh -1
  assert_usage_error "expected NAME WORKERS, got 3 of them" scale.sh demo 3 4
  assert_usage_error "unknown option '--workers'" scale.sh demo --workers 3
  assert_usage_error "unknown option '--backend=local'" scale.sh demo 3 --backend=local
  assert_usage_error "unknown option '-1x'" scale.sh demo -1x
  assert_usage_error "unknown option '--'" scale.sh -- demo 3
  assert_usage_error "--backend needs a value" scale.sh demo 3 --backend
}

@test "scale: an unknown backend is named, with those there are" {
  assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " scale.sh demo 3 --backend cloud
  assert_usage_error "unknown backend ''; there is: docker local oci stub " scale.sh --backend '' demo 3
  BACKEND=cloud assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " scale.sh demo 3
}

@test "scale: name and workers reach the backend as they were typed" {
  local workers
  for workers in 3 +2 -1 '' two; do
    run -0 --separate-stderr scale "my cluster" "${workers}"
    assert_output "${workers} of my cluster"
    assert_stderr ""
  done
  assert_calls "\
scale my\\ cluster 3
scale my\\ cluster +2
scale my\\ cluster -1
scale my\\ cluster ''
scale my\\ cluster two"
}

@test "scale: --backend may stand anywhere, and wins over BACKEND" {
  export BACKEND=cloud
  run -0 --separate-stderr scale --backend stub demo -1
  run -0 --separate-stderr scale demo --backend stub -1
  run -0 --separate-stderr scale demo -1 --backend stub
  assert_calls "\
scale demo -1
scale demo -1
scale demo -1"
}

@test "scale: config.env names the backend" {
  unset BACKEND
  echo 'BACKEND="stub"' >"${PROJECT}/config.env"
  run -0 --separate-stderr scale demo 3
  assert_calls "scale demo 3"
}

@test "scale: what the backend ends with is what it ends with" {
  local code
  for code in 2 69 77; do
    STUB_CODES="scale=${code}" run "-${code}" --separate-stderr scale demo 3
    assert_output ""
  done
}

@test "scale: works from anywhere, through bash, and with a CDPATH" {
  assert_found_from_anywhere "scale demo -1" scale.sh demo -1
}

@test "scale: no Python, or one that is too old, is named" {
  BACKEND=local assert_needs_python scale.sh demo 3
}

# --- The backend `local` ----------------------------------------------------------------------------------------------

@test "scale: a cluster that is not there is named, and those that are stay as they are" {
  use_local
  assert_refused 2 "scale.sh: error: there is no cluster 'demo'; known: none" scale demo 3
  add_ended_cluster gone
  assert_error 2 "scale.sh: error: there is no cluster 'demo'; known: gone" scale demo +1
  assert_error 2 "scale.sh: error: there is no cluster '-1'; known: gone" scale -1 gone
  assert [ ! -e "${PROJECT}/.clusters/gone-id/scale.json" ]
}

@test "scale: one that has ended is wrong usage, with the next step" {
  use_local
  add_ended_cluster gone
  assert_error 2 "scale.sh: error: gone has ended; launch it again: scripts/launch.sh" scale gone +1
  assert [ ! -e "${PROJECT}/.clusters/gone-id/scale.json" ]
}

# The same of one that has ended, of which everything says that it runs with one worker, which can be missed.
add_cluster_of_one() { # name
  add_running_cluster "$1"
  "${PYTHON}" - "${PROJECT}/.clusters/$1-id" <<'END'
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
  assert_error 2 "scale.sh: error: 0 workers are not possible, 1 to 250 are (1 now); the least is MIN_WORKERS" scale here -1
  assert_error 2 "scale.sh: error: 0 workers are not possible" scale here 0
  assert_error 2 "scale.sh: error: 251 workers are not possible" scale here +250
  assert_error 2 "scale.sh: error: 'two' is not a number of workers; write 4, +1 or -1" scale here two
  assert_error 2 "scale.sh: error: '' is not a number of workers; write 4, +1 or -1" scale here ''
  assert [ ! -e "${PROJECT}/.clusters/here-id/scale.json" ]
}

# Be the runner of a cluster: answer the next request with an error, or with none.
answer_next() { # name, error
  # shellcheck disable=SC2016 # the text of a script
  help_in_background "${PYTHON}" -c '
import json, os, pathlib, sys, time
directory, deadline = pathlib.Path(sys.argv[1]), time.monotonic() + 10
request = directory / "scale.json"
while not request.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
records = json.loads((directory / "nodes.json").read_text())
records["answer"] = {"id": json.loads(request.read_text())["id"], "error": sys.argv[2]}
(directory / "new").write_text(json.dumps(records))
os.replace(directory / "new", directory / "nodes.json")' "${PROJECT}/.clusters/$1-id" "$2"
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
  run -0 from_json 'found["start"], found["end"]' <"${PROJECT}/.clusters/here-id/scale.json"
  assert_output "[2, 3] []"
}

@test "scale: where there is no room it says so (needs .venv)" {
  use_tools
  use_local
  add_cluster_of_one here
  answer_next here "2 nodes do not fit"
  assert_error 69 "scale.sh: error: 2 nodes do not fit" scale here 3
}
