# shellcheck shell=bash
# Sourced by the scripts that a person runs: messages, help, and the call of Python. Sets no option, runs nothing.
# Keeps to bash 3.2, which macOS ships.

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

# version: the release and build of this project's wheel; of a checkout the release and the commit.
version() {
  local here wheel release
  here="$(dirname "${BASH_SOURCE[0]}")"
  for wheel in "${here}"/../vendor/oci_cluster-*.whl; do
    [[ -e "${wheel}" ]] || break
    wheel="${wheel##*/oci_cluster-}"
    printf '%s\n' "${wheel%-py3-none-any.whl}"
    return
  done
  if [[ -f "${here}/../vendor/requirements.txt" ]]; then # nothing is fetched yet
    sed -n 's/^oci-cluster *[=@]* *\([^ ]*\).*/\1/p' "${here}/../vendor/requirements.txt"
    return
  fi
  release="$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "${here}/oci_cluster/__init__.py")"
  printf '%s (%s)\n' "${release}" "$(git -C "${here}" describe --tags --always --dirty 2>/dev/null || echo 'no git here')"
}

# usage_error TEXT...: wrong command line; exit 2, the code of wrong usage.
usage_error() { die 2 "$* (${0##*/} --help says more)"; }

# setting NAME DEFAULT: a setting that is needed before there is Python: environment, config.env, default. Of config.env it
# reads what is plainly written, as read_settings_file of Python does, and refuses the rest.
setting() {
  local config line value="${!1:-}"
  local form="^([^[:space:]'\"\\\\]+|'[^']*'|\"[^\"\\\\]*\")?([[:space:]]+(#.*)?)?\$"
  config="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/config.env"
  if [[ -z "${value}" && -f "${config}" ]]; then
    line="$(sed -n "s/^[[:space:]]*\(export[[:space:]]\{1,\}\)\{0,1\}$1=//p" "${config}" | tail -n 1)"
    [[ "${line}" =~ ${form} ]] || die 78 "${config}: $1=${line%$'\r'} is not understood; write $1=VALUE, or set $1 in the environment"
    value="${BASH_REMATCH[1]}"
    case "${value}" in [\"\']*) value="${value:1:${#value}-2}" ;; *) ;; esac
  fi
  printf '%s\n' "${value:-$2}"
}

# run_verb VERB ARG...: a script's whole work: its help where that is asked for, else python -m oci_cluster VERB ARG...
# This shell stays, and passes signals on as TERM: Python, while it starts, makes a traceback of a Ctrl-C, or loses it.
run_verb() {
  local word code=0 last child="" interrupted=""
  trap 'interrupted=1; [[ -z "${child}" ]] || kill -TERM "${child}" 2>/dev/null || :' INT TERM HUP
  for word in "${@:2}"; do
    case "${word}" in
      --) break ;; # what follows is the entry point's
      -h | --help)
        usage
        exit
        ;;
      --version)
        version
        exit
        ;;
      *) ;;
    esac
  done
  # What is closed would be the next file that Python opens, and get what is printed.
  { : 3<&0; } 2>&- || exec </dev/null
  { : 3>&1; } 2>&- || exec >/dev/null
  { : 3>&2; } 1>&- || exec 2>/dev/null
  # A terminal sends Ctrl-C and its own end to both: Python is told once, by this shell.
  (trap '' INT HUP && exec_cluster "$@") <&0 &
  child=$!
  [[ -z "${interrupted}" ]] || kill -TERM "${child}" 2>/dev/null || :
  while :; do
    wait "${child}" && code=0 || code=$?
    # A signal ends wait, not the child: it first sees the cluster to its end.
    kill -0 "${child}" 2>/dev/null || break
  done
  if [[ -n "${interrupted}" && "${code}" -gt 128 ]]; then
    # A signal may have ended the last wait just before the child's own end: then this one tells how that was, unless
    # bash has forgotten it: 127, or -1 (5.2).
    wait "${child}" 2>/dev/null && last=0 || last=$?
    code=$((last < 0 || last == 127 || last > 128 ? 143 : last))
  fi
  exit "${code}"
}

# own_venv ROOT: the launcher's Python environment: .venv, unless that is the user's own. system/envs/python_env.py knows the same.
own_venv() {
  local venv="$1/.venv" mark
  if [[ -e "${venv}/pyvenv.cfg" || -e "${venv}/conda-meta" || -f "${venv}" ]]; then
    for mark in "${venv}"/.launcher.lock "${venv}"/.uv.lock "${venv}"/.tools-* "${venv}"/.dev-installed; do
      [[ ! -e "${mark}" ]] || break
    done
    [[ -e "${mark}" ]] || venv="$1/.venv-clusters"
  fi
  printf '%s\n' "${venv}"
}

# find_python ROOT: set `python` to the launcher's own, where it is made already, else to the one that makes it.
find_python() {
  local status=0
  python="$(own_venv "$1")/bin/python"
  if [[ ! -x "${python}" ]]; then
    python="$(setting PYTHON python3)" || exit
    "${python}" -c 'import sys; sys.exit(1 if sys.version_info < (3, 10) else 0)' 2>/dev/null || status=$?
    case "${status}" in
      0) ;;
      130 | 143) exit 143 ;; # Ctrl-C just now
      *) die 78 "'${python}' is not a Python of 3.10 or newer; install one, or name it: PYTHON=/path/to/python3 ${0##*/} ..." ;;
    esac
  fi
}

# fetch_wheel VENDOR: have pip bring the wheel that requirements.txt of that folder names, where another one was there
# last or none; pip checks its hash. Most projects have the wheel itself there.
fetch_wheel() {
  local vendor="$1" scratch status=0 fetching=""
  set -- "${vendor}"/oci_cluster-*.whl
  [[ -f "${vendor}/requirements.txt" ]] || return 0
  [[ ! -e "$1" ]] || ! cmp -s "${vendor}/requirements.txt" "${vendor}/.fetched" || return 0
  find_python "${vendor}/.."
  log "fetching the wheel that ${vendor}/requirements.txt names"
  scratch="$(mktemp -d "${vendor}/.new.XXXXXX")" || exit
  # A signal ends this shell, and not the program that it waits for: pip has a group of its own, which is ended.
  trap 'trap "" INT TERM HUP
    [[ -z "${fetching}" ]] || { kill -TERM -- "-${fetching}" && wait "${fetching}"; } 2>/dev/null || :
    rm -rf "${scratch}"
    log stopped || :' EXIT
  set -m
  { "${python}" -I -m venv "${scratch}/venv" &&
    "${scratch}/venv/bin/python" -I -m pip download --quiet --disable-pip-version-check --no-input --no-deps \
      --only-binary :all: --require-hashes --dest "${scratch}" --requirement "${vendor}/requirements.txt"; } </dev/null &
  fetching=$!
  set +m
  wait "${fetching}" || status=$?
  trap - EXIT
  [[ "${status}" -ne 0 ]] || { rm -f "$@" && mv "${scratch}"/*.whl "${vendor}" &&
    cp "${vendor}/requirements.txt" "${vendor}/.fetched"; } || status=$?
  rm -rf "${scratch}"
  [[ "${status}" -eq 0 ]] || die 69 "the wheel cannot be had; see above, and correct ${vendor}/requirements.txt"
}

# unpack_wheel FOLDER: unpack the wheel of a project, where one is that common/.unpacked does not name; a checkout has none.
unpack_wheel() {
  local folder="$1" python="" first="" edited="" name status=0
  fetch_wheel "${folder}/vendor"
  set -- "${folder}"/vendor/oci_cluster-*.whl
  if [[ ! -e "$1" ]]; then
    [[ -d "${folder}/common/oci_cluster" ]] || die 78 "${folder} has no vendor/oci_cluster-*.whl, which is all that the \
scripts run; bring it back, and see that git has it: git add -f vendor/*.whl"
    return
  fi
  [[ ! -f "${folder}/common/.unpacked" ]] || IFS=' ' read -r first edited <"${folder}/common/.unpacked" || :
  for name in ${edited}; do # an edited file that its user has removed comes back as the wheel has it
    [[ -e "${folder}/${name}" ]] || first=""
  done
  [[ $# -gt 1 || "${first}" != "${1##*/}" ]] || return 0
  find_python "${folder}"
  # -I: what is in the user's folder supplies no module.
  CLUSTER_PROGRAM="${0##*/}" "${python}" -I -c 'import sys
sys.path.insert(0, sys.argv[1])
try: from oci_cluster.project.unpack import main
except ImportError: sys.exit(99)
sys.exit(main(sys.argv[2]))' "$1" "${folder}" || status=$?
  [[ "${status}" -ne 99 ]] || die 78 "$1 is no wheel that can be read; bring it back from git"
  [[ "${status}" -eq 0 ]] || exit "${status}"
}

# exec_cluster VERB...: become python -m oci_cluster, with the launcher's own Python where it is made already. In the
# place of this shell, so that its signals are Python's.
exec_cluster() {
  local lib_dir python=""
  lib_dir="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
  unpack_wheel "${lib_dir%/*}"
  find_python "${lib_dir}/.."
  # $$: the shell that stays, in whose place Python ends its cluster when that is killed.
  export CLUSTER_SHELL="$$" CLUSTER_PROGRAM="${0##*/}" PYTHONPATH="${lib_dir}${PYTHONPATH:+:${PYTHONPATH}}"
  # Python looks for modules where it starts. The folder that the user happens to be in must not supply any; relative
  # paths start there all the same.
  export CLUSTER_CWD="${PWD}"
  cd "${lib_dir}" || exit
  exec "${python}" -m oci_cluster "$@"
}
