# shellcheck shell=bash
# Sourced by the scripts that a person runs: messages, help, and the door to Python. Sets no option, runs nothing.
# bash 3.2, which macOS ships.

# log TEXT...: talk, on stderr, under the script's name.
log() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die CODE TEXT...: say what is wrong, with the value and the next step, and end.
die() {
  local code="$1"
  shift
  log "error: $*"
  exit "${code}"
}

# usage: the script's header comment is its help; there is no other.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# usage_error TEXT...: wrong command line; exit 2, the code of wrong usage.
usage_error() { die 2 "$* (${0##*/} --help tells more)"; }

# need_value OPTION COUNT: an option came last, without its value. COUNT is what is left of the command line.
need_value() { [[ "$2" -ge 2 ]] || usage_error "$1 needs a value"; }

# setting NAME DEFAULT: a setting that is needed before there is Python: environment, config.env, default.
setting() {
  local config value="${!1:-}"
  config="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/config.env"
  if [[ -z "${value}" && -f "${config}" ]]; then
    value="$(sed -n "s/^$1=//p" "${config}" | tail -n 1)"
    value="${value#[\"\']}" value="${value%[\"\']}"
  fi
  printf '%s\n' "${value:-$2}"
}

# parse_cluster_options 'FLAG...' ARG...: the command line of a script about one cluster, into backend, options and name.
# A flag that ends with = takes a value; -h and --backend are understood by every script.
parse_cluster_options() {
  local flag flags="$1" known
  shift
  backend="$(setting BACKEND local)" name="" options=()
  while [[ $# -gt 0 ]]; do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --backend) need_value "$1" $# && backend="$2" && shift ;;
      -*)
        known=""
        for flag in ${flags}; do
          [[ "${flag%=}" != "$1" ]] || known="${flag}"
        done
        case "${known}" in
          "") usage_error "unknown option '$1'" ;;
          *=) need_value "$1" $# && options+=("$1=$2") && shift ;;
          *) options+=("$1") ;;
        esac
        ;;
      *)
        [[ -z "${name}" ]] || usage_error "one name at a time, got '${name}' and '$1'"
        name="$1"
        ;;
    esac
    shift
  done
  use_backend "${backend}"
}

# cluster VERB...: python -m oci_cluster, with the launcher's own Python where it is made already.
cluster() {
  (exec_cluster "$@")
}

# exec_cluster VERB...: the same in the place of this shell, so that its signals are Python's.
exec_cluster() {
  local lib_dir python status=0
  lib_dir="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
  python="${lib_dir}/../.venv/bin/python"
  if [[ ! -x "${python}" ]]; then
    python="$(setting PYTHON python3)"
    "${python}" -c 'import sys; sys.exit(1 if sys.version_info < (3, 10) else 0)' 2>/dev/null || status=$?
    case "${status}" in
      0) ;;
      130 | 143) exit 143 ;; # Ctrl-C just now
      *) die 78 "'${python}' is not a Python of 3.10 or newer; install one, or name it: PYTHON=/path/to/python3 ${0##*/} ..." ;;
    esac
  fi
  export CLUSTER_PROGRAM="${0##*/}" PYTHONPATH="${lib_dir}${PYTHONPATH:+:${PYTHONPATH}}"
  # Python looks for modules where it starts. The folder that the user happens to be in must not supply any; relative
  # paths start there all the same.
  export CLUSTER_CWD="${PWD}"
  cd "${lib_dir}" || exit
  exec "${python}" -m oci_cluster "$@"
}

# use_backend NAME: run the functions of scripts/backends/NAME.sh from here on.
use_backend() {
  local backends
  backends="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/../scripts/backends" && pwd)"
  if [[ ! "$1" =~ ^[a-z]+$ || ! -f "${backends}/$1.sh" ]]; then
    usage_error "unknown backend '$1'; there is: $(cd "${backends}" && printf '%s ' *.sh | sed 's/\.sh / /g')"
  fi
  # shellcheck disable=SC1090 # one of scripts/backends/, checked above
  source "${backends}/$1.sh"
}
