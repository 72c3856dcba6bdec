# Loaded by the tests of scripts/: a project of the test's own to run them in, and what they all must do.

test_python="${PYTHON:-python3}" # `make PYTHON=...`; isolate unsets it

# Make ${PROJECT}, what a user's project has of ours, in a path with spaces, without .venv. Its backend `stub` is the
# one that scripts take; ${STUB_DIR} holds what it was asked. Its files are links to those that all tests share: `own` one
# before it is written to.
make_project() {
  # shellcheck disable=SC2046 # names
  unset $(names_in "${ROOT}/dask/settings.env")
  PROJECT="${BATS_TEST_TMPDIR}/my project"
  export STUB_DIR="${BATS_TEST_TMPDIR}/stub" BACKEND=stub PYTHON="${test_python}"
  mkdir "${STUB_DIR}"
  cp -Rpl "${SHARED}/project" "${PROJECT}"
  mkfifo "${STUB_DIR}/gate"
}

# Make a file the test's own, to write to.
own() { # file
  cp -p "$1" "$1.own"
  mv "$1.own" "$1"
}

# Make the .venv of ${PROJECT}, as a launch does: its Python runs our code, and refuses to install anything.
make_venv() { # interpreter
  mkdir -p "${PROJECT}/.venv/bin"
  # shellcheck disable=SC2016 # the text of a script
  printf '#!/bin/sh\n[ "$1 $2" = "-m oci_cluster" ] || exit 99\nexec "%s" "$@"\n' "$1" >"${PROJECT}/.venv/bin/python"
  chmod +x "${PROJECT}/.venv/bin/python"
}

# Make it with the launcher's packages, those of the checkout; skip the test where that has none to lend. What is installed
# by mistake stays in the project.
use_tools() {
  [[ -e "${SHARED}/venv" ]] || skip "no fsspec in .venv; run: ./scripts/dev-setup.sh python"
  cp -Rp "${SHARED}/venv" "${PROJECT}/.venv"
}

# Print what a Python expression makes of `found`, the JSON on stdin.
from_json() { # expression
  "${PYTHON}" -c "import json, sys; found = json.load(sys.stdin); print($1)"
}

# --- Assertions -------------------------------------------------------------------------------------------------------

# The backend got exactly these calls, one a line.
assert_calls() { # text
  assert_equal "$(cat "${STUB_DIR}/calls" 2>/dev/null)" "$1"
}

# Nothing was made in the project, and the backend was asked to start nothing.
assert_nothing_started() {
  assert [ ! -e "${PROJECT}/.venv" ]
  assert [ ! -e "${PROJECT}/.clusters" ]
  refute grep -qsE '^(prepare|start|end|finish|remove)' "${STUB_DIR}/calls"
}

# The command ends with a code, nothing on stdout, and one line on stderr that begins as given.
assert_error() { # code, text, command...
  local code="$1" text="$2"
  shift 2
  printf 'asked: %s\n' "$*"
  run "-${code}" --separate-stderr "$@"
  assert_output ""
  assert_equal "${#stderr_lines[@]}" 1
  assert_equal "${stderr:0:${#text}}" "${text}"
}

# The same, before the command has started or made anything.
assert_refused() { # code, text, command...
  assert_error "$@"
  assert_nothing_started
}

assert_usage_error() { # message, script, argument...
  local message="$1" script="$2"
  shift 2
  assert_refused 2 "${script}: error: ${message} (${script} --help says more)" "${PROJECT}/scripts/${script}" "$@"
  assert_calls ""
}

# The script's header comment is its help; of one script, however it is asked for.
assert_help() { # script
  local script="${PROJECT}/scripts/$1" here="${PWD}" help
  help="$(sed -n -e '1d' -e '/^#/!q' -e 's/^# //p' -e 's/^#$//p' "${script}")"
  assert_regex "${help}" "^Usage: $1"
  assert [ "$(wc -l <<<"${help}")" -ge 8 ]
  asked() {
    printf 'asked: %s\n' "$*"
    run -0 --separate-stderr "$@"
    assert_output "${help}"
    assert_stderr ""
    assert_calls ""
  }
  PYTHON=/none BACKEND=none asked "${script}" -h # before anything is looked for
  [[ "$1" == launch.sh ]] || return 0
  asked "${script}" --help
  asked bash "${script}" --help
  cd "${PROJECT}/scripts" || return
  asked "./$1" -h
  asked bash "$1" -h
  cd "${here}" || return
}

# Make a Python that believes to have a version, and can do nothing but tell it.
python_of_version() { # version, file
  cat >"$2" <<END
#!/bin/sh
[ "\$1" = -c ] || exit 99
exec "${test_python}" -c 'import sys
sys.version_info = tuple(int(part) for part in sys.argv[1].split("."))
exec(sys.argv[2])' $1 "\$2"
END
  chmod +x "$2"
}

# A start script names each of these variables, in this order, where all are missing; nothing is started.
assert_requires() { # script, variable...
  local name words=(-u "$2")
  for name in "${@:3}"; do
    words+=(-u "${name}")
  done
  run -78 env "${words[@]}" "$1"
  assert_line --partial "error: not set: ${*:2}; common/README.md says what each is"
  assert_calls ""
}

# Without a Python that is new enough the script says which it tried and ends with 78.
assert_needs_python() { # script, argument...
  local script="$1" old="${BATS_TEST_TMPDIR}/old python" advice
  shift
  advice="is not a Python of 3.10 or newer; install one, or name it: PYTHON=/path/to/python3 ${script} ..."
  PYTHON=/no/such assert_refused 78 "${script}: error: '/no/such' ${advice}" "${PROJECT}/scripts/${script}" "$@"
  [[ "${script}" == launch.sh ]] || return 0
  python_of_version 3.9 "${old}"
  PYTHON="${old}" assert_refused 78 "${script}: error: '${old}' ${advice}" "${PROJECT}/scripts/${script}" "$@"
  unset PYTHON
  PATH="$(path_without python3)" assert_refused 78 "${script}: error: 'python3' ${advice}" "${PROJECT}/scripts/${script}" "$@"
}

# The script finds its project from anywhere, also where the user's CDPATH offers another folder of that name.
assert_found_from_anywhere() { # calls of one run, script, argument...
  local calls="$1" script="$2" here="${PWD}"
  shift 2
  mkdir -p elsewhere/scripts elsewhere/common
  export CDPATH="${PWD}/elsewhere"
  from_here() {
    rm -f "${STUB_DIR}/calls"
    printf 'asked: %s\n' "$*"
    run -0 --separate-stderr "$@"
    assert_calls "${calls}"
    refute_output --partial elsewhere
  }
  cd "${PROJECT}" || return
  from_here "scripts/${script}" "$@"
  cd ./scripts || return
  from_here bash "${script}" "$@"
  cd "${here}" || return
}

# --- Clusters that are not there --------------------------------------------------------------------------------------

# Make the files of a cluster of the backend `local`, or of another, that has ended, with one worker.
add_ended_cluster() { # name, backend
  local directory="${PROJECT}/.clusters/$1-id-of-$1"
  mkdir -p "${directory}/logs" "${directory}/outputs"
  printf '{"name": "%s", "cluster_id": "%s-id-of-%s", "launch_id": "id-of-%s", "framework": "dask", "backend": "%s",
    "created": "2020-01-01T00:00:00Z", "work_dir": "file://%s", "environment": {"WORKER_COUNT": "1", "MIN_WORKERS": "1"},
    "nodes": [{"node": "MAIN", "environment": {"MODE": "MAIN", "NODE_RANK": "0", "NODE_ADDRESS": "127.0.0.1"}},
              {"node": "WORKER_1", "environment": {"MODE": "WORKER", "NODE_RANK": "1", "NODE_ADDRESS": "127.0.0.2"}}]}' \
    "$1" "$1" "$1" "$1" "${2:-local}" "${PROJECT}/.clusters" >"${directory}/cluster.json"
  printf '{"runner_pid": null, "nodes": [{"node": "MAIN", "state": "FAILED", "exit_code": 7, "pid": 1},
    {"node": "WORKER_1", "state": "FAILED", "exit_code": 7, "pid": 1}]}' >"${directory}/nodes.json"
  printf '%s\n' 'main one' 'main two' >"${directory}/logs/MAIN.log"
  printf '%s\n' 'worker one' >"${directory}/logs/WORKER_1.log"
}

# The same of one that runs, as far as anyone can see: this shell holds its lock.
add_running_cluster() { # name
  local lock="${PROJECT}/.clusters/$1-id-of-$1/runner.lock"
  add_ended_cluster "$1"
  printf '{"runner_pid": null, "nodes": [{"node": "MAIN", "state": "IN_PROGRESS", "exit_code": null, "pid": 1},
    {"node": "WORKER_1", "state": "IN_PROGRESS", "exit_code": null, "pid": 1}]}' >"${PROJECT}/.clusters/$1-id-of-$1/nodes.json"
  exec 8>"${lock}"
  # The lock belongs to the open file, which this shell keeps, not to the process that asks for it.
  "${PYTHON}" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX)'
}

# --- Processes --------------------------------------------------------------------------------------------------------

# Look every 20 ms until the command succeeds; fail after two minutes: what takes a second takes twenty on a machine that is
# busy, and nothing here measures a time.
eventually() { # command...
  local deadline=$((SECONDS + 120))
  until "$@"; do
    ((SECONDS < deadline)) || fail "never came true in 120 s: $*"
    sleep 0.02
  done
}

# Run a command in the background, in a process group of its own, as a terminal does; JOB is its pid. `finish` must follow.
begin() { # command...
  set -m
  "$@" </dev/null >"${BATS_TEST_TMPDIR}/job.out" 2>"${BATS_TEST_TMPDIR}/job.err" 3>&- 8>&- &
  JOB=$!
  set +m
}

is_there_or_ended() { [[ -e "$1" ]] || has_ended "${JOB}"; } # file
has_ended() { ! kill -0 -- "$1" 2>/dev/null; }

# Wait for the job's end, and that of its whole group; set what `run --separate-stderr` sets.
# shellcheck disable=SC2034 # assertions read what is set
finish() {
  eventually has_ended "${JOB}"
  status=0
  wait "${JOB}" || status=$?
  eventually has_ended "-${JOB}"
  output="$(cat "${BATS_TEST_TMPDIR}/job.out")"
  stderr="$(cat "${BATS_TEST_TMPDIR}/job.err")"
  IFS=$'\n' read -r -d '' -a lines <<<"${output}" || true
  IFS=$'\n' read -r -d '' -a stderr_lines <<<"${stderr}" || true
}

# Run a helper of the test in the background: `end_jobs` ends it.
helpers=()
help_in_background() { # command...
  "$@" </dev/null 3>&- &
  helpers+=("$!")
}

# Let go what STUB_BLOCK, or a reader of the gate, holds.
open_gate() {
  : >"${STUB_DIR}/opened"
  help_in_background cp /dev/null "${STUB_DIR}/gate"
}

# For teardown: end whatever a failed test has left.
end_jobs() {
  [[ -z "${JOB:-}" ]] || kill -KILL -- "-${JOB}" 2>/dev/null || true
  [[ ${#helpers[@]} -eq 0 ]] || kill -KILL ${helpers[@]+"${helpers[@]}"} 2>/dev/null || true
  wait
}
