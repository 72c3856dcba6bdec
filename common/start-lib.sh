# shellcheck shell=bash
# Sourced by start scripts on the node. Needs bash 4.3 or newer. Sets no option, runs nothing.

# log TEXT...: one line for the node's log. A log that cannot be written (full disk) ends nothing.
log() { printf '%(%H:%M:%S)T %s: %s\n' -1 "${0##*/}" "$*" >&2 || :; }

# die CODE TEXT...: say what is wrong, to the log and to the agent, and end with CODE of common/README.md's table.
die() {
  local code="$1"
  shift
  log "error: $*"
  [[ -z "${NODE_DIR:-}" ]] || printf '%s\n' "$*" >"${NODE_DIR}/reason" || :
  exit "${code}"
}

# require NAME...: end with 78, naming every variable that is not set.
require() {
  local name missing=""
  for name in "$@"; do
    [[ -n "${!name:-}" ]] || missing+=" ${name}"
  done
  [[ -z "${missing}" ]] || die 78 "not set:${missing}; common/README.md says what each is"
}

# read_entry_args: the entry point's arguments into the array entry_args, exactly as they were given.
read_entry_args() {
  local arg
  entry_args=()
  while IFS= read -r -d '' arg; do
    entry_args+=("${arg}")
  done <"${ENTRY_ARGS_FILE}"
}

# read_profile_cmd: PROFILE_CMD into the array profile_cmd, where it counts on this node, and {output} in it a path of this
# process's own: several ranks of a node write several files. ENTRY_RANK is for those that RANK does not number.
read_profile_cmd() {
  local word rank="${ENTRY_RANK:-${RANK:-}}"
  profile_cmd=()
  [[ -s "${NODE_DIR:-}/profile-cmd" ]] || return 0
  while IFS= read -r -d '' word; do
    profile_cmd+=("${word//\{output\}/${OUTPUT_DIR}/profile-${NODE_NAME}${rank:+-rank-${rank}}}")
  done <"${NODE_DIR}/profile-cmd"
}

# run_entry_point: become the user's module, notebook or script, in CODE_DIR; a Python one with the environment's Python.
run_entry_point() {
  local -a entry_args profile_cmd
  read_entry_args
  read_profile_cmd
  # Its Python notes what ends it, see entry/sitecustomize.py, and the agent looks for that.
  export ENTRY_PID="${BASHPID}"
  [[ -z "${NODE_DIR:-}" ]] || printf '%s\n' "${ENTRY_PID}" >"${NODE_DIR}/entry-pid" || :
  cd "${CODE_DIR:?}" || exit
  if [[ -n "${ENTRY_MODULE:-}" ]]; then
    exec ${profile_cmd[@]+"${profile_cmd[@]}"} python -m "${ENTRY_MODULE}" ${entry_args[@]+"${entry_args[@]}"}
  fi
  if [[ "${ENTRY_POINT}" == *.ipynb ]]; then
    exec ${profile_cmd[@]+"${profile_cmd[@]}"} python "${BASH_SOURCE[0]%/*}/run-notebook.py" "${ENTRY_POINT}"
  fi
  if [[ "${ENTRY_POINT}" == *.[pP][yY] ]]; then
    exec ${profile_cmd[@]+"${profile_cmd[@]}"} python "${ENTRY_POINT}" ${entry_args[@]+"${entry_args[@]}"}
  fi
  exec ${profile_cmd[@]+"${profile_cmd[@]}"} "$(realpath "${ENTRY_POINT}")" ${entry_args[@]+"${entry_args[@]}"}
}

# hiding_modules MODULE NAME...: where MODULE, with which a service begins, cannot be imported, print which files of the code
# hide a module of Python's own, or NAME, from it: the code stands first on its path. Else nothing.
hiding_modules() {
  ! python -c "import $1" >/dev/null 2>&1 || return 0
  python -I -c '
import pathlib, sys
code, names = pathlib.Path(sys.argv[1]), {*sys.stdlib_module_names, *sys.argv[2:]}
found = [f"{code.name}/{file.name}" for file in code.glob("*.py") if file.stem in names]
found += [f"{code.name}/{file.parent.name}/" for file in code.glob("*/__init__.py") if file.parent.name in names]
print(", ".join(sorted(found)))
' "${CODE_DIR:?}" "$@" || :
}

# session_facts: print the lines that the kind of session has for READY_FILE, such as the key of its host; none elsewhere.
session_facts() {
  [[ -n "${SESSION:-}" ]] || return 0
  local script="${ENTRY_POINT%/*}/facts.sh"
  [[ ! -e "${script}" ]] || "${script}"
}

# run_session_alone: where main is all that a session has, be ready, and become it; a launcher of ranks has no part in it.
run_session_alone() {
  [[ -n "${SESSION:-}" && "${WORKER_COUNT}" == 0 ]] || return 0
  write_ready session_facts
  run_entry_point
}

# changed_imports FOLDER: print the PYTHONPATH with which the framework's FOLDER changes what an entry point imports.
changed_imports() { printf '%s\n' "${1%/*}/common/entry:$1/entry${PYTHONPATH:+:${PYTHONPATH}}"; }

# grace_share PERCENT: set `milliseconds` to that share of GRACE_PERIOD, which is 10 s where nobody has said it. A part that a
# start script ends has less time than the script itself, which is killed, and would leave its work half done.
grace_share() {
  local period="${GRACE_PERIOD:-10}" whole fraction
  [[ "${period}" =~ ^[0-9]{1,12}(\.[0-9]+)?$ ]] || die 78 "GRACE_PERIOD: expected seconds, got '${period}'"
  IFS=. read -r whole fraction <<<"${period}"
  fraction="${fraction}000"
  # shellcheck disable=SC2034 # the caller's
  milliseconds=$(((10#${whole} * 1000 + 10#${fraction:0:3}) * $1 / 100))
}

# end_child PID [PERCENT]: tell a child to end, and wait for that; kill it where PERCENT of GRACE_PERIOD is over, and return
# 1 then. No PID is no child.
end_child() {
  local milliseconds looks=0 deadline
  [[ -n "$1" ]] && kill -TERM "$1" 2>/dev/null || return 0
  if [[ -n "${2:-}" ]]; then
    grace_share "$2"
    # A look on a busy machine takes several times its 50 ms: whole seconds are counted as well.
    deadline=$((SECONDS + (milliseconds + 999) / 1000))
    while kill -0 "$1" 2>/dev/null; do
      ((looks++ < milliseconds / 50 && SECONDS <= deadline)) || break
      sleep 0.05
    done
    ! kill -KILL "$1" 2>/dev/null || looks=killed
  fi
  wait "$1" 2>/dev/null || :
  [[ "${looks}" != killed ]]
}

# wait_for_workers PID LOST [COMMAND]: return when COMMAND, else all_workers_there, says that every worker node is there. Run
# LOST, which ends this script, when process PID, with which the cluster lives, ended first; after TIMEOUT, run the start
# script's own end_all, and end with 75 and the names of those that are missing.
wait_for_workers() {
  local code=0 missing=""
  wait_until "$1" "${3:-all_workers_there}" || code=$?
  if [[ "${code}" -eq 75 ]]; then
    missing_workers || missing="all workers"
    end_all
    die 75 "not ready after ${TIMEOUT} s: missing ${missing}"
  fi
  [[ "${code}" -eq 0 ]] || "$2"
}

# write_ready COMMAND...: make READY_FILE, whole, of what COMMAND prints; not where that fails.
write_ready() {
  "$@" >"${READY_FILE}.new"
  mv "${READY_FILE}.new" "${READY_FILE}"
}

# wait_until PID COMMAND...: look every 50 ms until COMMAND succeeds. 1 when process PID ended first, 75 after TIMEOUT.
wait_until() {
  local pid="$1" deadline=$((SECONDS + TIMEOUT))
  shift
  until "$@"; do
    kill -0 "${pid}" 2>/dev/null || return 1
    ((SECONDS < deadline)) || return 75
    sleep 0.05
  done
}

# missing_workers: set `missing` to the worker nodes that are still to come: those that the framework has named in
# NODE_DIR/missing-workers, a name in each line, but for nodes that have left: the agent ends the script where too few are
# left. MAIN there is main's own worker. 1 while the framework has not said.
missing_workers() {
  local node
  local -a absent=() members=()
  missing=""
  [[ -e "${NODE_DIR}/missing-workers" ]] || return
  mapfile -t absent <"${NODE_DIR}/missing-workers"
  if [[ -e "${NODE_DIR}/members" ]]; then
    mapfile -t members <"${NODE_DIR}/members"
  else
    members=("${absent[@]}")
  fi
  for node in ${absent[@]+"${absent[@]}"}; do
    [[ " MAIN ${members[*]-} " != *" ${node} "* ]] || missing+="${node} "
  done
}

# all_workers_there: whether no worker node is still to come; for wait_until.
all_workers_there() { missing_workers && [[ -z "${missing}" ]]; }
