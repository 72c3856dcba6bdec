# Loaded by every .bats file: where things are, bats-assert, and a test's own surroundings. Nothing else.

bats_require_minimum_version 1.5.0 # run -0, --separate-stderr

ROOT="$(CDPATH='' cd -P "${BATS_TEST_DIRNAME}/../.." && pwd)"
export BATS_LIB_PATH="${ROOT}/node_modules"
bats_load_library bats-support
bats_load_library bats-assert

# A file that needs more defines its own setup, which begins with `isolate`.
setup() { isolate; }

# Give the test a HOME and a working directory of its own, both with spaces in their paths, a PATH of stubs
# and system folders, and none of the variables that a node or a script reads: no test can reach the user's cloud
# account or settings.
isolate() {
  local place="${BATS_TEST_TMPDIR}/a folder with spaces"
  # shellcheck disable=SC2046 # names; in one command: bats halts at each, which for hundreds takes 0.2 s
  unset $(<"${SHARED}/settings") "${!OCI_@}" "${!XDG_@}" CDPATH PYTHON PYTHONHOME PYTHONPATH
  mkdir -p "${place}/home" "${place}/work"
  export HOME="${place}/home" PATH="${ROOT}/tests/scripts/stubs:/usr/bin:/bin"
  cd "${place}/work" || return
}

# Print the names in a file of settings.
names_in() { sed -nE 's/^([A-Z_]+)=.*/\1/p' "$1"; }

# Print a PATH on which the named commands are missing and the rest of the system folders is there. The folder is made
# once: a thousand links.
path_without() {
  local bin="${SHARED}/without $*" name new
  if [[ ! -e "${bin}" ]]; then
    new="$(mktemp -d "${SHARED}/making.XXXXXX")"
    ln -s /usr/bin/* "${new}/"
    [[ /bin -ef /usr/bin ]] || ln -sf /bin/* "${new}/" # not in one call: ln refuses the same name twice
    for name in "$@"; do
      rm -f "${new:?}/${name}"
    done
    ln -sn "${new}" "${bin}" 2>/dev/null || [[ -e "${bin}" ]] # a test beside this one was first
  fi
  printf '%s\n' "${ROOT}/tests/scripts/stubs:${bin}"
}
