#!/usr/bin/env bats
# scripts/launch.sh: its command line, what it asks of a backend and in which order, and how signals end it.
# The backend `stub` starts nothing. Where the backend `local` is tested, it is refused before it starts anything.
# shellcheck disable=SC2016 # single quotes hold the text of scripts

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}
teardown() { end_jobs; }

launch() { "${PROJECT}/scripts/launch.sh" "$@"; }

# What the backend was given to start: print what a Python expression makes of `found`, the plan.
submitted() { from_json "$1" <"${STUB_DIR}/plan.json"; }

# What a launch would do: print what a Python expression makes of `found`, its plan.
planned() { # expression, argument of launch.sh...
  local expression="$1"
  shift
  launch dask 2 --dry-run "$@" >"${BATS_TEST_TMPDIR}/planned" || return
  from_json "${expression}" <"${BATS_TEST_TMPDIR}/planned"
}

# Take the backend `local`, with ports that nobody has: whatever else runs on this machine is not to matter. It checks and
# prepares; a launch that it does not refuse ends with 99, and starts nothing.
use_local() {
  export BACKEND=local SCHEDULER_PORT DASHBOARD_PORT
  read -r SCHEDULER_PORT DASHBOARD_PORT < <("${PYTHON}" -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(listener.getsockname()[1] for listener in held))')
  cat >>"${PROJECT}/scripts/backends/local.sh" <<'END'
backend_submit() { die 99 "was to start a cluster"; }
backend_run() { die 99 "was to start a cluster"; }
END
}

# The same, which prepares nothing either.
use_local_check() {
  use_local
  echo 'backend_prepare() { die 99 "was to prepare"; }' >>"${PROJECT}/scripts/backends/local.sh"
}

# --- Help, usage, place -----------------------------------------------------------------------------------------------

@test "launch: the header comment is the help" {
  assert_help launch.sh
}

@test "launch: a wrong command line starts nothing" {
  local option
  assert_usage_error "expected <framework> <workers>, got 0 of them" launch.sh
  assert_usage_error "expected <framework> <workers>, got 1 of them" launch.sh dask
  assert_usage_error "expected <framework> <workers>, got 3 of them" launch.sh dask 3 mine.py
  assert_usage_error "expected <framework> <workers>, got 1 of them" launch.sh dask -- 3
  assert_usage_error "unknown option '--workers'" launch.sh dask --workers 3
  assert_usage_error "unknown option '--name=demo'" launch.sh dask 3 --name=demo
  assert_usage_error "unknown option '-x'" launch.sh -x dask 3
  for option in --entry --code --python --env --name --ps --ttl --backend; do
    assert_usage_error "${option} needs a value" launch.sh dask 3 "${option}"
  done
}

@test "launch: an unknown backend is named, with those there are" {
  assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " launch.sh dask 3 --backend cloud
  assert_usage_error "unknown backend ''; there is: docker local oci stub " launch.sh dask 3 --backend ''
  BACKEND=cloud assert_usage_error "unknown backend 'cloud'; there is: docker local oci stub " launch.sh dask 3
}

@test "launch: no Python, or one that is too old, is named" {
  assert_needs_python launch.sh dask 3
  assert_calls ""
}

@test "launch: works from anywhere, through bash, and with a CDPATH" {
  assert_found_from_anywhere "\
check
prepare dask ''
submit /environment\ of/dask/bin/python" launch.sh dask 1 --detach
}

# --- Bad input --------------------------------------------------------------------------------------------------------

@test "launch: workers that are no whole number from 1 to the most are refused" {
  local workers
  for workers in 0 -1 abc 1000000 3.5 '' 251; do
    assert_refused 2 "launch.sh: error: workers: '${workers}' is not a whole number from 1 to 250, which is what the stub backend takes" \
      launch dask "${workers}"
  done
  assert_calls ""
}

@test "launch: workers that begin like a negative number are refused in one line" {
  assert_refused 2 "launch.sh: error: " launch dask -1x
  assert_stderr --partial "'-1x'"
}

@test "launch: an unknown framework is named, with those there are" {
  local name
  for name in nope '' ../dask scripts; do
    assert_refused 2 "launch.sh: error: unknown framework '${name}'; this checkout has: dask" launch "${name}" 3
  done
  assert_calls ""
}

@test "launch: the slash that completion puts after a framework is no part of its name" {
  run -0 --separate-stderr launch dask/ 1
  run -0 submitted '[found["framework"], found["environment"]["FRAMEWORK"]]'
  assert_output "['dask', 'dask']"
  run -0 head -n 2 "${STUB_DIR}/calls"
  assert_line "prepare dask ''"
}

@test "launch: an entry point that is not there is named, with where it was looked for" {
  mkdir folder code
  touch outside.py
  local missing="there is no file"
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'no.py' in '${PWD}'; " launch dask 3 --entry no.py
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'folder' in '${PWD}'; " launch dask 3 --entry folder
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'no.py' in '${PWD}' or 'code'; " launch dask 3 --code code --entry no.py
  assert_refused 2 "launch.sh: error: --entry: ${missing} 'outside.py' in '${PWD}' or 'code'; " launch dask 3 --code code --entry outside.py
  ENTRY_POINT=no.py assert_refused 78 "launch.sh: error: bad settings: ENTRY_POINT: ${missing} 'no.py' in '${PWD}'; " launch dask 3
  assert_calls ""
}

@test "launch: a folder of code needs an entry point, and must be there" {
  mkdir code
  assert_refused 2 "launch.sh: error: --code 'code' has no entry point: say with --entry which" launch dask 3 --code code
  assert_refused 2 "launch.sh: error: --code: 'nowhere' is not a directory; " launch dask 3 --code nowhere
}

@test "launch: a bad TTL is named by the flag or the variable that brought it" {
  local ttl
  for ttl in soon -5 1h30m; do
    assert_refused 2 "launch.sh: error: --ttl: '${ttl}' is not a duration; write seconds, or a number with s, m, h or d" \
      launch dask 3 --ttl "${ttl}"
  done
  TTL=soon assert_refused 78 "launch.sh: error: bad settings: TTL: 'soon' is not a duration; " launch dask 3
  assert_calls ""
}

@test "launch: a bad number of parameter servers is named by the flag or the variable that brought it" {
  local servers
  for servers in some -1 1.5 1000001; do
    assert_refused 2 "launch.sh: error: --ps: '${servers}' is not a whole number from 0 to 1000000" \
      launch dask 3 --ps "${servers}"
  done
  PS_COUNT=some assert_refused 78 "launch.sh: error: bad settings: PS_COUNT: 'some' is not a whole number" launch dask 3
  assert_calls ""
}

@test "launch: a bad setting is refused when --env brings it, too" {
  assert_refused 78 "launch.sh: error: bad settings: TTL: " launch dask 3 --env TTL=soon
  assert_stderr --partial "'soon' is not a duration"
}

@test "launch: all bad settings are named at once" {
  echo 'HEARTBEAT_TIMEOUT=often' >"${PROJECT}/config.env"
  TIMEOUT=long EPHEMERAL=perhaps assert_refused 78 "launch.sh: error: bad settings: " launch dask 3
  assert_stderr --partial "EPHEMERAL: 'perhaps'"
  assert_stderr --partial "TIMEOUT: 'long'"
  assert_stderr --partial "HEARTBEAT_TIMEOUT: 'often'"
}

@test "launch: a line of config.env that is no setting is named" {
  printf '%s\n' '# mine' 'TIMEOUT=5' 'export TTL=1h' >"${PROJECT}/config.env"
  assert_refused 78 "launch.sh: error: ${PROJECT}/config.env:3: expected KEY=VALUE " launch dask 3
  assert_stderr --partial "got: export TTL=1h"
}

@test "launch: a bad --env is named" {
  local pair
  for pair in FOO '' =x 1A=b --x=1; do
    assert_refused 2 "launch.sh: error: --env '${pair}' is not NAME=VALUE" launch dask 3 --env "${pair}"
  done
  assert_calls ""
}

@test "launch: an --env that the launch itself decides is named" {
  local name
  for name in MODE NODE_RANK WORKER_COUNT LAUNCH_ID CLUSTER_ID FRAMEWORK NODE_ADDRESS; do
    assert_refused 2 "launch.sh: error: --env ${name} is decided by the launch itself; " launch dask 3 --env "${name}=1"
  done
  assert_calls ""
}

@test "launch: an --env that has an option of its own is sent there" {
  assert_refused 2 "launch.sh: error: --env CODE_DIR has a way of its own: --code" launch dask 3 --env CODE_DIR=x
  assert_refused 2 "launch.sh: error: --env ARGS has a way of its own: -- ARGUMENT" launch dask 3 --env ARGS=x
}

@test "launch: a bad name is named" {
  local name
  for name in 'a b' ../x -x; do
    assert_refused 2 "launch.sh: error: --name: '${name}' is not a name of letters, digits and . _ -" launch dask 3 --name "${name}"
  done
  assert_refused 2 "launch.sh: error: --name: '000" launch dask 3 --name "$(printf '%0256d' 0)"
  assert_stderr --partial " at most"
  assert_calls ""
}

@test "launch: a --python that cannot be one is named" {
  touch file
  mkdir folder
  local name
  for name in file folder no/such; do
    assert_refused 2 "launch.sh: error: --python ${name} is not an executable; " launch dask 3 --python "${name}"
  done
  assert_calls ""
}

@test "launch: a --python that looks like an option is refused in one line" {
  assert_refused 2 "launch.sh: error: " launch dask 3 --python --mine
  assert_stderr --partial "--mine"
}

# --- The user's own environment, on the backend local -----------------------------------------------------------------

# A Python that has no packages: it is only ever asked which of some it lacks.
python_lacking() { # file, JSON list
  cat >"$1" <<END
#!/bin/sh
[ "\$1 \$2" = "-I -c" ] || exit 99
echo '$2'
END
  chmod +x "$1"
}

@test "launch: a --python that lacks packages is told which, and how to install them" {
  use_local
  python_lacking "${PWD}/python" '["dask", "distributed"]'
  assert_refused 78 "launch.sh: error: --python ${PWD}/python lacks dask, distributed; install" launch dask 3 --python "${PWD}/python"
  assert_stderr --partial ": ${PWD}/python -m pip install dask distributed"
}

@test "launch: a --python that does not run is named" {
  use_local
  printf '#!/bin/sh\necho broken >&2\nexit 1\n' >python
  chmod +x python
  assert_refused 78 "launch.sh: error: --python ${PWD}/python is not a Python that can be run: broken" launch dask 3 --python "${PWD}/python"
}

@test "launch: --python takes an environment's folder" {
  use_local
  mkdir -p environment/bin
  python_lacking environment/bin/python '["dask"]'
  assert_refused 78 "launch.sh: error: --python " launch dask 3 --python "${PWD}/environment"
  assert_stderr --partial "environment/bin/python lacks dask; install"
}

@test "launch: a --python that is given from here is found by nodes, which run elsewhere" {
  mkdir -p environment/bin
  python_lacking environment/bin/python '[]'
  make_venv "${PYTHON}" # with the stamp that tells that it is complete
  touch "${PROJECT}/.venv/.tools-$("${PYTHON}" -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest()[:16])' "${PROJECT}/common/requirements.txt")"
  echo 'backend_prepare() { (source "${root}/scripts/backends/local.sh" && backend_prepare "$@"); }' >>"${PROJECT}/scripts/backends/stub.sh"
  run -0 --separate-stderr launch dask 1 --detach --python environment/bin/python
  run -0 grep '^submit ' "${STUB_DIR}/calls"
  assert_output "submit $(printf %q "${PWD}/environment/bin/python")"
}

# --- A launch ---------------------------------------------------------------------------------------------------------

@test "launch: checks, prepares, then runs and follows" {
  run -0 --separate-stderr launch dask 3
  assert_output "MAIN | hello"
  assert_stderr ""
  assert_calls "\
check
prepare dask ''
run /environment\ of/dask/bin/python"
}

@test "launch: the cluster's exit code is its own" {
  local code
  for code in 1 7 75 143; do
    STUB_CODES="run=${code}" run "-${code}" --separate-stderr launch dask 3
    assert_output "MAIN | hello"
  done
  run ! grep stop "${STUB_DIR}/calls" # it has ended by itself
}

@test "launch: a check that fails ends it, and nothing is prepared" {
  STUB_CODES=check=78 run -78 --separate-stderr launch dask 3
  assert_output ""
  assert_stderr ""
  assert_calls "check"
  STUB_CODES=check=69 run -69 launch dask 3 --dry-run
}

@test "launch: a preparation that fails ends it, and nothing is started" {
  STUB_CODES=prepare=69 run -69 --separate-stderr launch dask 3
  assert_output ""
  assert_stderr ""
  assert_calls "\
check
prepare dask ''"
}

@test "launch: a submission that fails ends it, with nothing to stop" {
  STUB_CODES=submit=77 run -77 --separate-stderr launch dask 3 --detach
  assert_output ""
  assert_stderr ""
  assert_calls "\
check
prepare dask ''
submit /environment\ of/dask/bin/python"
}

@test "launch: --detach prints the name alone, and follows nothing" {
  run -0 --separate-stderr launch dask 3 --detach
  assert_output demo
  assert_stderr ""
  assert_calls "\
check
prepare dask ''
submit /environment\ of/dask/bin/python"
}

@test "launch: --detach --json prints the status as JSON" {
  run -0 --separate-stderr launch dask 3 --json --detach
  assert_output "status of --json demo"
  assert_stderr ""
}

@test "launch: --backend wins over BACKEND" {
  BACKEND=local run -0 --separate-stderr launch dask 3 --backend stub
  run -0 submitted 'found["backend"]'
  assert_output stub
}

@test "launch: BACKEND of config.env counts where neither flag nor environment names one" {
  unset BACKEND
  echo 'BACKEND=stub' >"${PROJECT}/config.env"
  run -0 planned 'found["backend"]'
  assert_output stub
}

# --- The plan ---------------------------------------------------------------------------------------------------------

@test "launch: the plan has one main, the workers, and the example" {
  run -0 launch dask 3
  run -0 submitted '[found[key] for key in ("schema", "framework", "backend", "work_dir", "python")]'
  assert_output "[1, 'dask', 'stub', '', '']"
  run -0 submitted '" ".join(node["node"] + "=" + node["environment"]["NODE_RANK"] for node in found["nodes"])'
  assert_output "MAIN=0 WORKER_1=1 WORKER_2=2 WORKER_3=3"
  run -0 submitted '[found["environment"][key] for key in ("WORKER_COUNT", "EPHEMERAL", "ENTRY_POINT", "ARGS")]'
  assert_output "['3', '1', 'train.py', '[]']"
  run -0 submitted 'found["environment"]["CODE_DIR"]'
  assert_output "${PROJECT}/dask/example"
}

@test "launch: each launch has an id and a name of its own" {
  run -0 planned 'found["name"]'
  first="${output}"
  assert_regex "${first}" '^dask-[0-9a-f]{4}$'
  run -0 planned 'found["name"]'
  refute_output "${first}"
}

@test "launch: arguments after -- reach the plan exactly" {
  local arguments=(a 'b  c' "d'e" 'f"g' $'h\ni' '' -x --env --keep --arguments '$HOME' '*' "\\" 'ü' -1 -)
  run -0 launch dask 1 --name x -- "${arguments[@]}"
  run -0 submitted '*json.loads(found["environment"]["ARGS"]), sep="|"'
  expected="$(printf '%s|' "${arguments[@]}")"
  assert_output "${expected%|}"
  run -0 submitted 'found["environment"]["EPHEMERAL"]'
  assert_output 1 # --keep was the entry point's
}

@test "launch: a second -- is an argument" {
  run -0 launch dask 1 -- -- -h
  run -0 submitted 'found["environment"]["ARGS"]'
  assert_output '["--", "-h"]'
  run -0 launch dask 1 -- a -- b
  run -0 submitted 'found["environment"]["ARGS"]'
  assert_output '["a", "--", "b"]'
}

@test "launch: ARGS counts where nothing stands after launch.sh's own words, not where -- does" {
  export ARGS="one 'two  three'"
  run -0 planned 'found["environment"]["ARGS"]'
  assert_output '["one", "two  three"]'
  run -0 planned 'found["environment"]["ARGS"]' --
  assert_output '[]'
}

@test "launch: a script of one's own runs in its folder, or in the one that is given" {
  mkdir -p "my code/deep"
  touch "my code/deep/it's mine.py"
  run -0 planned '[found["environment"][key] for key in ("CODE_DIR", "ENTRY_POINT")]' --entry "my code/deep/it's mine.py"
  assert_output "['${PWD}/my code/deep', \"it's mine.py\"]"
  run -0 planned '[found["environment"][key] for key in ("CODE_DIR", "ENTRY_POINT")]' --code "my code" --entry "deep/it's mine.py"
  assert_output "['${PWD}/my code', \"deep/it's mine.py\"]"
  run -0 planned '[found["environment"][key] for key in ("CODE_DIR", "ENTRY_POINT")]' --code "${PWD}/my code" --entry "my code/deep/it's mine.py"
  assert_output "['${PWD}/my code', \"deep/it's mine.py\"]"
}

@test "launch: --keep has no entry point, --ttl and --name are passed on" {
  run -0 planned '[found["environment"][key] for key in ("EPHEMERAL", "ENTRY_POINT", "TTL", "CLUSTER_NAME")]' \
    --keep --ttl 2h --name my.demo_1
  assert_output "['0', '', '2h', 'my.demo_1']"
}

@test "launch: --ps adds parameter servers, whose ranks follow the workers'" {
  run -0 planned '[found["environment"]["PS_COUNT"], [node["node"] for node in found["nodes"]]]' --ps 2
  assert_output "['2', ['MAIN', 'WORKER_1', 'WORKER_2', 'PS_3', 'PS_4']]"
  PS_COUNT=1 run -0 planned 'found["environment"]["PS_COUNT"]' --ps 0
  assert_output 0
}

@test "launch: --env sets variables on every node, the last of a name wins" {
  run -0 planned '[found["environment"][key] for key in ("A", "B", "C", "D")]' --env A=1 --env 'B=x = y' --env C= --env $'D=a\nb' --env A=2
  assert_output "['2', 'x = y', '', 'a\\nb']"
}

@test "launch: --python is passed on, absolute in the plan" {
  mkdir -p environment/bin
  ln -s /bin/true environment/bin/python
  run -0 planned 'found["python"]' --python environment/bin/python
  assert_output "${PWD}/environment/bin/python"
  run -0 planned 'found["python"]' --python environment
  assert_output "${PWD}/environment/bin/python"
}

# --- Who wins ---------------------------------------------------------------------------------------------------------

@test "launch: flags win over the environment, that over config.env, that over settings.env" {
  least() { run -0 planned 'found["environment"]["MIN_WORKERS"]' "$@"; }
  least
  assert_output "$(sed -n 's/^MIN_WORKERS=//p' "${PROJECT}/dask/settings.env")"
  echo 'MIN_WORKERS=12' >"${PROJECT}/config.env"
  least
  assert_output 12
  MIN_WORKERS=13 least
  assert_output 13
  MIN_WORKERS=13 least --env MIN_WORKERS=14
  assert_output 14
}

@test "launch: a flag wins over every name of its setting" {
  touch mine.py other.py
  printf '%s\n' 'TTL=1m' 'ENTRY_POINT=other.py' 'CLUSTER_NAME=other' >"${PROJECT}/config.env"
  LIFE_SPAN=2m OCI__LIFE_SPAN=3m ENTRY_SCRIPT=other.py CLUSTER_NAME=another \
    run -0 planned '[found["environment"][key] for key in ("TTL", "ENTRY_POINT", "CLUSTER_NAME")]' --ttl 4m --entry mine.py --name mine
  assert_output "['4m', 'mine.py', 'mine']"
}

@test "launch: config.env is read, not run" {
  printf '%s\n' '# comment' "CLUSTER_NAME='demo' # why" 'TTL="90"' 'WORK_DIR="file:///$(touch ran)/`touch ran`"' >"${PROJECT}/config.env"
  run -0 planned '[found["name"], found["environment"]["TTL"], found["work_dir"]]'
  assert_output "['demo', '90', 'file:///\$(touch ran)/\`touch ran\`']"
  assert [ ! -e ran ]
}

@test "launch: the environment wins over config.env under every name of a setting" {
  echo 'TTL=1h' >"${PROJECT}/config.env"
  LIFE_SPAN=2h run -0 planned 'found["environment"]["TTL"]'
  assert_output 2h
}

# --- A dry run --------------------------------------------------------------------------------------------------------

# Every file of project, work folder and HOME, with size and time; what Python compiles on the way is nobody's business.
tree() { find "${PROJECT}" "${BATS_TEST_TMPDIR}/a folder with spaces" -name __pycache__ -prune -o -exec ls -ld {} +; }

@test "launch: --dry-run asks for nothing but a check, and prints what that says" {
  run -0 --separate-stderr launch dask 3 --dry-run --detach
  assert_stderr ""
  assert_calls check
  run -0 from_json 'len(found["nodes"])' <<<"${output}"
  assert_output 4
}

@test "launch: --dry-run on the backend local prints each node's address and changes nothing" {
  use_local_check
  before="$(tree)"
  run -0 --separate-stderr launch dask 2 --dry-run --json --name demo
  assert_equal "$(tree)" "${before}"
  assert_nothing_started
  plan="$(launch dask 2 --dry-run)"
  run -0 from_json '[node["environment"]["NODE_ADDRESS"] for node in found["nodes"]]' <<<"${plan}"
  assert_output --regexp "^\['127\.0\.0\.[0-9]+', '127\.0\.0\.[0-9]+', '127\.0\.0\.[0-9]+'\]$"
  run -0 from_json '[found["work_dir"], found["environment"]["WORK_DIR"]]' <<<"${plan}"
  assert_output "['file://${PROJECT}/.clusters', 'file://${PROJECT}/.clusters']"
}

@test "launch: --dry-run hides what the name of a variable says is secret, and the cluster gets it" {
  use_local_check
  local secret=(MY_TOKEN=hush DB_PASSWORD=hush AWS_SECRET_ACCESS_KEY=hush api_key=hush PRIVATE=hush GIT_CREDENTIALS=hush)
  local options=(--env MONKEY=see --env TOKE=see) pair
  for pair in "${secret[@]}"; do
    options+=(--env "${pair}")
  done
  run -0 --separate-stderr launch dask 1 --dry-run "${options[@]}"
  refute_output --partial hush
  run -0 from_json 'sorted(key for key, value in found["environment"].items() if value == "(not shown)")' <<<"${output}"
  assert_output "['AWS_SECRET_ACCESS_KEY', 'DB_PASSWORD', 'GIT_CREDENTIALS', 'MY_TOKEN', 'PRIVATE', 'api_key']"
  run -0 launch dask 1 --backend stub "${options[@]}"
  run -0 submitted '[found["environment"][key] for key in ("MY_TOKEN", "api_key", "MONKEY")]'
  assert_output "['hush', 'hush', 'see']"
}

# --- What the backend local refuses -----------------------------------------------------------------------------------

@test "launch: a second cluster of a name is refused while the first runs" {
  use_local_check
  add_running_cluster demo
  assert_error 2 "launch.sh: error: a cluster named 'demo' is running; choose another --name, or end it: scripts/stop.sh demo" \
    launch dask 1 --name demo
  exec 8>&- # ended
  run -0 launch dask 1 --name demo --dry-run
}

@test "launch: a port that somebody else has is named, with the way out" {
  use_local_check
  run -0 planned 'found["nodes"][0]["environment"]["NODE_ADDRESS"]'
  address="${output}"
  listen() {
    exec "${PYTHON}" -c 'import signal, socket, sys
listener = socket.create_server((sys.argv[1], 8786))
open(sys.argv[2], "w").close()
signal.pause()' "${address}" "${BATS_TEST_TMPDIR}/listening" 2>"${BATS_TEST_TMPDIR}/refused"
  }
  help_in_background listen
  eventually test -e "${BATS_TEST_TMPDIR}/listening" -o -s "${BATS_TEST_TMPDIR}/refused"
  [[ -e "${BATS_TEST_TMPDIR}/listening" ]] || skip "port 8786 of ${address} is in use on this machine: not tested"
  unset SCHEDULER_PORT # the default, 8786
  assert_refused 78 "launch.sh: error: port 8786 of ${address} is taken by another program; end it, or choose another" launch dask 1
  assert_stderr --partial ": --env SCHEDULER_PORT=8886"
}

@test "launch: a port that is none is named" {
  use_local_check
  assert_refused 78 "launch.sh: error: SCHEDULER_PORT: '99999' is not a whole number from 1 to 65535" \
    launch dask 1 --env SCHEDULER_PORT=99999
  DASHBOARD_PORT=http assert_refused 78 "launch.sh: error: DASHBOARD_PORT: 'http' is not" launch dask 1
}

@test "launch: a work dir in memory is refused" {
  use_local_check
  WORK_DIR=memory://here assert_refused 78 "launch.sh: error: WORK_DIR memory://here is seen by one process only; use file://" launch dask 1
}

@test "launch: a work dir that is no URL is refused" {
  use_local_check
  WORK_DIR=/data/clusters assert_refused 78 "launch.sh: error: " launch dask 1
  assert_stderr --partial "'/data/clusters' is not an fsspec URL"
}

# The backend `local`, which really submits, with nothing to prepare.
use_local_submit() {
  use_local
  cp "${ROOT}/scripts/backends/local.sh" "${PROJECT}/scripts/backends/local.sh"
  echo 'backend_prepare() { command -v "${PYTHON}"; }' >>"${PROJECT}/scripts/backends/local.sh"
}

@test "launch: a .clusters that cannot be made is named, and nothing is started" {
  use_local_submit
  touch "${PROJECT}/.clusters"
  assert_error 77 "launch.sh: error: ${PROJECT}/.clusters cannot be written: " launch dask 1
  assert [ ! -s "${PROJECT}/.clusters" ]
}

# --- Signals ----------------------------------------------------------------------------------------------------------

# Begin a launch and wait until it is in a phase: check, prepare, submit or run.
begin_launch() { # phase, argument...
  local phase="$1"
  shift
  STUB_BLOCK="${phase}" begin "${PROJECT}/scripts/launch.sh" dask 2 "$@"
  eventually is_there_or_ended "${STUB_DIR}/reached"
  assert [ -e "${STUB_DIR}/reached" ]
}

# Begin one that stays in `plan`: its config.env does not end.
begin_launch_in_plan() {
  mkfifo "${PROJECT}/config.env"
  endless() {
    exec >"${PROJECT}/config.env" # opens when launch.sh reads it
    : >"${STUB_DIR}/reached"
    exec cat "${STUB_DIR}/gate"
  }
  help_in_background endless
  begin_launch none
}

ctrl_c() { kill -INT -- "-${JOB}"; } # a terminal sends it to the whole group

checked="check"
prepared="${checked}
prepare dask ''"
submitted="${prepared}
submit /environment\ of/dask/bin/python"
running="${prepared}
run /environment\ of/dask/bin/python"

assert_ended_by_signal() { # calls
  finish
  assert_failure 143
  assert_calls "$1"
}

@test "launch: Ctrl-C while it plans ends it" {
  begin_launch_in_plan
  ctrl_c
  assert_ended_by_signal ""
  assert_output ""
  assert_stderr ""
}

@test "launch: TERM while it plans ends it, and nothing is started" {
  begin_launch_in_plan
  kill -TERM "${JOB}"
  open_gate
  finish
  assert_failure 143
  refute grep -qsE '^(submit|run|stop)' "${STUB_DIR}/calls"
}

@test "launch: Ctrl-C while it checks ends it" {
  begin_launch check
  ctrl_c
  assert_ended_by_signal "${checked}
check was told to end"
  assert_output ""
}

@test "launch: Ctrl-C while it prepares ends it" {
  begin_launch prepare
  ctrl_c
  assert_ended_by_signal "${prepared}
prepare was told to end"
  assert_output ""
}

@test "launch: Ctrl-C is a stop also where a part dies of it, instead of ending in order" {
  echo 'backend_prepare() { stub_call prepare && : >"${STUB_DIR}/reached" && exec cat "${STUB_DIR}/gate"; }' >>"${PROJECT}/scripts/backends/stub.sh"
  begin_launch none
  ctrl_c
  assert_ended_by_signal "${checked}
prepare"
  assert_stderr ""
}

@test "launch: TERM while it prepares ends it, and nothing is started" {
  begin_launch prepare --detach
  kill -TERM "${JOB}"
  open_gate
  assert_ended_by_signal "${prepared}"
  assert_output ""
}

@test "launch: Ctrl-C while it submits ends it; a submission that was ended has left nothing to stop" {
  begin_launch submit --detach
  ctrl_c
  assert_ended_by_signal "${submitted}
submit was told to end"
  assert_output ""
}

@test "launch: TERM while it submits stops the cluster that comes of it" {
  begin_launch submit --detach
  kill -TERM "${JOB}"
  open_gate
  assert_ended_by_signal "${submitted}
stop demo"
  assert_output ""
}

@test "launch: Ctrl-C while the cluster runs is passed on to who knows how to stop it" {
  begin_launch run
  ctrl_c
  assert_ended_by_signal "${running}
run was told to end"
  assert_output "MAIN | hello"
  assert_stderr ""
}

@test "launch: TERM or HUP to launch.sh alone while the cluster runs is passed on" {
  local signal
  for signal in TERM HUP; do
    rm -f "${STUB_DIR}/reached" "${STUB_DIR}/calls"
    begin_launch run
    kill "-${signal}" "${JOB}"
    assert_ended_by_signal "${running}
run was told to end"
  done
}

@test "launch: a signal in the moment in which the cluster is started is passed on" {
  # Before launch.sh has taken note of the process: its own words, seen by a trap of the backend, which it sources.
  cat >>"${PROJECT}/scripts/backends/stub.sh" <<'END'
set -o functrace
trap '[[ "${BASH_COMMAND}" != "runner=\$!" || -e "${STUB_DIR}/reached" ]] || at_this_moment' DEBUG
at_this_moment() {
  while [[ ! -e "${STUB_DIR}/reached" ]]; do sleep 0.02; done
  kill -TERM "$$"
}
END
  begin_launch run
  assert_ended_by_signal "${running}
run was told to end"
}

@test "launch: a cluster that ends by itself after a signal keeps its exit code" {
  # One that, told to end, takes its time and ends with a code of its own.
  cat >>"${PROJECT}/scripts/backends/stub.sh" <<'END'
backend_run() {
  trap ': >"${STUB_DIR}/told"' TERM
  : >"${STUB_DIR}/reached"
  until [[ -e "${STUB_DIR}/told" ]]; do sleep 0.02; done # launch.sh passes the signal on when it comes to it
  cat "${STUB_DIR}/gate"
  exit 7
}
END
  begin_launch none
  kill -TERM "${JOB}"
  open_gate
  finish
  assert_failure 7
}
