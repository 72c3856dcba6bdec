# shellcheck shell=bash
# Backend `stub` of the tests: it starts nothing and notes every call in ${STUB_DIR}/calls, with the arguments as %q writes them.
#
#   STUB_CODES  "prepare=69 run=7": what these functions end with, instead of 0
#   STUB_BLOCK  the function that stays until ${STUB_DIR}/gate, a FIFO, is opened; ${STUB_DIR}/reached tells that it stays

backend_most_workers() { echo 250; }

# stub_call FUNCTION ARG...: note the call, stay if told so, return the function's code.
stub_call() {
  local function="$1" code waiting
  shift
  {
    printf '%s' "${function}"
    [[ $# -eq 0 ]] || printf ' %q' "$@"
    printf '\n'
  } >>"${STUB_DIR}/calls"
  if [[ "${STUB_BLOCK:-}" == "${function}" ]]; then
    cat "${STUB_DIR}/gate" >/dev/null &
    waiting=$!
    # What oci_cluster makes of a signal: it ends in order, with 143.
    trap 'trap "" INT TERM; echo "${function} was told to end" >>"${STUB_DIR}/calls"; kill "${waiting}"; wait "${waiting}" || :; exit 143' INT TERM
    : >"${STUB_DIR}/reached"
    wait "${waiting}"
  fi
  code=" ${STUB_CODES:-}"
  code="${code##* "${function}="}"
  [[ "${code}" != [0-9]* ]] || return "${code%% *}"
}

backend_check() {
  stub_call check && cat
}
backend_prepare() {
  stub_call prepare "$@" && echo "/environment of/$1/bin/python"
}
backend_submit() {
  cat >"${STUB_DIR}/plan.json"
  stub_call submit "$@" && echo demo
}
backend_run() {
  cat >"${STUB_DIR}/plan.json"
  echo "MAIN | hello"
  stub_call run "$@"
}
backend_status() { stub_call status "$@" && echo "status of $*"; }
backend_list() { stub_call list "$@" && echo "list $*"; }
backend_logs() { stub_call logs "$@" && echo "logs of $*"; }
backend_scale() { stub_call scale "$@" && echo "$2 of $1"; }
backend_stop() { stub_call stop "$@" && echo "stopped $*"; }
