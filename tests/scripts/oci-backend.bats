#!/usr/bin/env bats
# BACKEND=oci: what can be said without an account: settings and dry runs.
# shellcheck disable=SC2016 # single quotes hold the text of scripts
# bats file_tags=slow

load test_helper.bash
load project.bash

COMPARTMENT=ocid1.compartment.oc1..aaaacompartment
DATA_SCIENCE_PROJECT=ocid1.datascienceproject.oc1.iad.aaaaproject

setup() {
  isolate
  make_project
  # shellcheck disable=SC2046 # names
  unset $(names_in "${ROOT}/scripts/backends/oci.env") WORK_DIR CODE_URI
  export BACKEND=oci
}

# Make once what use_oci_tools lends: a .venv with the packages of the checkout's own, and all stamps.
setup_file() {
  local tools="${ROOT}/.venv/bin/python" venv="${BATS_FILE_TMPDIR}/venv"
  "${tools}" -I -c 'import fsspec, jinja2, oci, ocifs' 2>/dev/null || return 0
  mkdir -p "${venv}/bin"
  cp "${ROOT}/.venv/pyvenv.cfg" "${venv}"
  ln -s "${ROOT}/.venv/lib" "${venv}/lib"
  "${tools}" -I - "${ROOT}/common" "${venv}" <<'END'
import hashlib, pathlib, os, sys
common, venv = map(pathlib.Path, sys.argv[1:])
(venv / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
for stamp, name in (("tools", "requirements.txt"), ("oci-tools", "requirements-oci.txt")):
    (venv / f".{stamp}-{hashlib.sha256((common / name).read_bytes()).hexdigest()[:16]}").touch()
END
}

# Have that .venv in the project, an oci-cli that notes and refuses, and no way out: whoever dials anybody is noted in
# ${BATS_TEST_TMPDIR}/dialed.
use_oci_tools() {
  local venv="${PROJECT}/.venv"
  [[ -e "${BATS_FILE_TMPDIR}/venv" ]] || skip "no ocifs in .venv; run: ./scripts/dev-setup.sh python"
  cp -Rp "${BATS_FILE_TMPDIR}/venv" "${venv}"
  printf '#!/bin/sh\necho "$*" >>"%s"\nexit 97\n' "${BATS_TEST_TMPDIR}/oci-calls" >"${venv}/bin/oci"
  chmod +x "${venv}/bin/oci"
  mkdir "${BATS_TEST_TMPDIR}/guard"
  cat >"${BATS_TEST_TMPDIR}/guard/sitecustomize.py" <<END
import socket
def refuse(*words, **named):
    with open("${BATS_TEST_TMPDIR}/dialed", "a") as file:
        print(words, file=file)
    raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
END
  export PYTHONPATH="${BATS_TEST_TMPDIR}/guard"
}

# What is always needed.
use_settings() {
  export COMPARTMENT_OCID="${COMPARTMENT}" PROJECT_OCID="${DATA_SCIENCE_PROJECT}" IMAGE=iad.ocir.io/ns/dask:1
  export WORK_DIR=oci://bucket@ns/work SUBNET_OCID=ocid1.subnet.oc1.iad.aaaasubnet SUBNET_CIDR=10.0.0.0/24
}

launch() { "${PROJECT}/scripts/launch.sh" "$@"; }

# Nobody was dialed, oci-cli was not called, and nothing is kept of a cluster.
assert_nothing_sent() {
  assert [ ! -e "${BATS_TEST_TMPDIR}/dialed" ]
  assert [ ! -e "${BATS_TEST_TMPDIR}/oci-calls" ]
  assert [ ! -e "${PROJECT}/.clusters" ]
}

# --- Settings ---------------------------------------------------------------------------------------------------------

@test "oci backend: a fresh checkout names what is missing before it installs half a gigabyte" {
  assert_refused 78 "launch.sh: error: bad settings: COMPARTMENT_OCID is not set" \
    launch dask 1 --dry-run
  assert_refused 78 "stop.sh: error: COMPARTMENT_OCID is not set" "${PROJECT}/scripts/stop.sh" mine
}

# --- Dry runs ---------------------------------------------------------------------------------------------------------

@test "oci backend: a dry run needs no account and no network, and changes nothing" {
  use_oci_tools
  use_settings
  assert [ ! -e "${HOME}/.oci" ]
  run -0 --separate-stderr launch dask 2 --dry-run --name demo
  assert_stderr --regexp "^launch\.sh: code in .*/dask/example: 1 file with [0-9]+ bytes, [0-9]+ bytes compressed$"
  assert_line --index 0 "#!/usr/bin/env bash"
  assert_line "# Run a cluster of dask on OCI Data Science: main, 2 workers; each of them a Job Run."
  assert_line "workers=2"
  bash -n <<<"${output}"
  assert_nothing_sent
}

# --- Without an account -----------------------------------------------------------------------------------------------

@test "oci backend: without an account a launch says how to get one" {
  use_oci_tools
  use_settings
  run -78 --separate-stderr launch dask 2 </dev/null
  assert_output ""
  assert_equal "${#stderr_lines[@]}" 2
  assert_regex "${stderr_lines[0]}" "^launch\.sh: code in "
  assert_regex "${stderr_lines[1]}" "^launch\.sh: error: no identity for OCI: OCI_CLI_AUTH=api_key, profile DEFAULT of "
  assert_regex "${stderr}" 'make one: oci setup config \(API key\) or oci session authenticate'
  assert_nothing_sent
}
