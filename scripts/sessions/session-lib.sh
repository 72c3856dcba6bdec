# shellcheck shell=bash
# Sourced by the start scripts of sessions, on the node, after common/start-lib.sh. Sets no option, runs nothing.

# What no program of the session needs: its key; and settings that a launch from inside it would take for its own.
# shellcheck disable=SC2034 # the start scripts'
UNNEEDED=(LAUNCH_KEY CLUSTER_NAME MIN_WORKERS TTL)

# session_address: print the address that the session's server listens on: no more than the way to it needs.
session_address() {
  if [[ "${OWN_NETWORK:-0}" == 1 ]]; then
    printf '127.0.0.1\n'
  else
    printf '%s\n' "${NODE_ADDRESS}"
  fi
}

# enter_session_folder: set `folder`, where the user works, and go there: the code's folder, where that is the user's own,
# else a copy of it in the outputs, so that what is changed comes back. A session that begins again finds it there.
enter_session_folder() {
  folder="${CODE_DIR}"
  # /code is an image's, or mounted there read-only; what a node has fetched goes with the node.
  if [[ "${CODE_DIR}" == /code || "${CODE_DIR}/" == "${NODE_DIR}/"* || ! -w "${CODE_DIR}" ]]; then
    folder="${OUTPUT_DIR}/code"
    if [[ ! -e "${folder}" ]]; then
      mkdir -p "${folder}.new"
      cp -R "${CODE_DIR}/." "${folder}.new/"
      chmod -R u+rwX "${folder}.new"
      mv "${folder}.new" "${folder}"
    fi
    PYTHONPATH="${folder}${PYTHONPATH:+:${PYTHONPATH}}"
    export PYTHONPATH
  fi
  cd "${folder}" || exit
}

# need_modules KIND MODULE...: end with 78 where the environment of this node lacks what the kind of session needs.
need_modules() {
  local kind="$1"
  shift
  python -I -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "$@" ||
    die 78 "this node's Python lacks one of: $*; scripts/sessions/${kind}/env.yaml lists what it needs: build the image with EXTRA_ENV=scripts/sessions/${kind}/env.yaml, or install it in your --python"
}
