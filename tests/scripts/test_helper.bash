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
  local name place="${BATS_TEST_TMPDIR}/a folder with spaces"
  for name in $(settings_named_in_documents) $(compgen -v | grep -E '^(OCI_|XDG_)'); do
    unset "${name}"
  done
  unset CDPATH PYTHON PYTHONHOME PYTHONPATH
  mkdir -p "${place}/home" "${place}/work"
  export HOME="${place}/home" PATH="${ROOT}/tests/scripts/stubs:/usr/bin:/bin"
  cd "${place}/work" || return
}

# The names in the first column of the contract's tables, and those in config.env.example.
settings_named_in_documents() {
  awk -F '|' '/^\| `/ { gsub(/[`\/]/, " ", $2); print $2 }' "${ROOT}/common/README.md" |
    tr ' ' '\n' | grep -xE '[A-Z][A-Z0-9_]+'
  [[ ! -e "${ROOT}/config.env.example" ]] ||
    sed -nE 's/^#? *([A-Z][A-Z0-9_]*)=.*/\1/p' "${ROOT}/config.env.example"
}

# Print a PATH on which the named commands are missing and the rest of the system folders is there.
path_without() {
  local bin="${BATS_TEST_TMPDIR}/bin without $*" name
  mkdir -p "${bin}"
  ln -sf /bin/* "${bin}/"
  ln -sf /usr/bin/* "${bin}/" # not in one call: where /bin is /usr/bin, ln refuses the same name twice
  for name in "$@"; do
    rm -f "${bin:?}/${name}"
  done
  printf '%s\n' "${ROOT}/tests/scripts/stubs:${bin}"
}
