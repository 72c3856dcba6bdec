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
  assert_refused 78 "list.sh: error: COMPARTMENT_OCID is not set" "${PROJECT}/scripts/list.sh"
  assert_refused 78 "stop.sh: error: COMPARTMENT_OCID is not set" "${PROJECT}/scripts/stop.sh" mine
}

@test "oci backend: what is missing is named at once, in one line" {
  use_oci_tools
  assert_error 78 "launch.sh: error: bad settings: " launch dask 2
  local name
  for name in COMPARTMENT_OCID PROJECT_OCID IMAGE WORK_DIR; do
    assert_regex "${stderr}" "${name} is not set"
  done
  assert_regex "${stderr}" '\(config\.env\.example explains each\)$'
  assert_nothing_sent
}

@test "oci backend: a dry run refuses what a launch would" {
  use_oci_tools
  use_settings
  IMAGE=dask assert_error 78 "launch.sh: error: bad settings: IMAGE: 'dask' " launch dask 2 --dry-run
  SHAPE=VM.GPU.A10.1 OCPUS=4 assert_error 78 "launch.sh: error: bad settings: OCPUS: VM.GPU.A10.1 " \
    launch dask 2 --dry-run
  assert_nothing_sent
}

@test "oci backend: a secret is refused, and not shown" {
  use_oci_tools
  use_settings
  assert_error 78 "launch.sh: error: bad settings: everybody who may read the Job would see HF_TOKEN" \
    launch dask 2 --env HF_TOKEN=hunter2
  refute_regex "${stderr}" hunter2
  assert_nothing_sent
}

@test "oci backend: config.env supplies settings, and the environment wins" {
  use_oci_tools
  cat >"${PROJECT}/config.env" <<END
BACKEND=oci
COMPARTMENT_OCID=${COMPARTMENT}
PROJECT_OCID="${DATA_SCIENCE_PROJECT}"
IMAGE=iad.ocir.io/ns/dask:1
WORK_DIR='oci://bucket@ns/work'
SUBNET_OCID=ocid1.subnet.oc1.iad.aaaasubnet
SHAPE=VM.GPU.A10.1
END
  unset BACKEND
  SHAPE=VM.GPU2.1 launch dask 2 --dry-run --json >"${BATS_TEST_TMPDIR}/planned"
  run -0 from_json 'found["job"]["compartmentId"], found["job"]["jobInfrastructureConfigurationDetails"]["shapeName"]' \
    <"${BATS_TEST_TMPDIR}/planned"
  assert_output "${COMPARTMENT} VM.GPU2.1"
  assert_nothing_sent
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

@test "oci backend: a dry run can be JSON" {
  use_oci_tools
  use_settings
  launch dask 2 --dry-run --json --name demo -- 'an argument' '$(id)' >"${BATS_TEST_TMPDIR}/planned"
  run -0 from_json '[run["displayName"] for run in found["job_runs"]]' <"${BATS_TEST_TMPDIR}/planned"
  assert_output "['demo-MAIN', 'demo-WORKER_1', 'demo-WORKER_2']"
  run -0 from_json 'json.loads(found["job"]["jobConfigurationDetails"]["environmentVariables"]["ARGS"])' \
    <"${BATS_TEST_TMPDIR}/planned"
  assert_output "['an argument', '\$(id)']"
  assert_nothing_sent
}

@test "oci backend: on a notebook session, compartment and project are the session's own" {
  use_oci_tools
  use_settings
  unset COMPARTMENT_OCID PROJECT_OCID
  export NB_SESSION_OCID=ocid1.datasciencenotebooksession.oc1.iad.aaaa NB_SESSION_COMPARTMENT_OCID="${COMPARTMENT}"
  PROJECT_OCID="${DATA_SCIENCE_PROJECT}" run -0 --separate-stderr launch dask 2 --dry-run --json
  assert_equal "${stderr_lines[0]}" \
    "launch.sh: COMPARTMENT_OCID is not set: that of this notebook session is used, ${COMPARTMENT}"
  assert_equal "${stderr_lines[1]}" \
    "launch.sh: PROJECT_OCID is not set: that of this notebook session is used, ${DATA_SCIENCE_PROJECT}"
  run -0 from_json 'found["job"]["compartmentId"], found["job"]["projectId"]' <<<"${output}"
  assert_output "${COMPARTMENT} ${DATA_SCIENCE_PROJECT}"
  assert_nothing_sent
}

# --- A command line that cannot be ------------------------------------------------------------------------------------

@test "oci backend: --python is for the backend local" {
  use_oci_tools
  use_settings
  assert_error 2 "launch.sh: error: --python works with the backend local only" \
    launch dask 2 --python "$(command -v "${PYTHON}")"
  assert_nothing_sent
}

@test "oci backend: a thousand nodes are the most" {
  use_oci_tools
  use_settings
  assert_error 2 "launch.sh: error: " launch dask 1000
  assert_regex "${stderr}" 999
  assert_nothing_sent
}

# --- Without an account -----------------------------------------------------------------------------------------------

@test "oci backend: without an account every script says how to get one" {
  local script arguments expected
  use_oci_tools
  use_settings
  while read -r script arguments; do
    # shellcheck disable=SC2086 # words
    run -78 --separate-stderr "${PROJECT}/scripts/${script}" ${arguments} </dev/null
    assert_output ""
    # A launch has told by then what would go.
    expected=1
    if [[ "${script}" == launch.sh ]]; then
      expected=2
      assert_regex "${stderr_lines[0]}" "^launch\.sh: code in "
    fi
    assert_equal "${#stderr_lines[@]}" "${expected}"
    assert_regex "${stderr_lines[${#stderr_lines[@]} - 1]}" \
      "^${script}: error: no identity for OCI: OCI_CLI_AUTH=api_key, profile DEFAULT of "
    assert_regex "${stderr}" 'make one: oci setup config \(API key\) or oci session authenticate'
  done <<'END'
launch.sh dask 2
list.sh
status.sh demo
logs.sh demo
scale.sh demo 3
stop.sh demo
END
  assert_nothing_sent
}

@test "oci backend: an unknown kind of account is named" {
  use_oci_tools
  use_settings
  OCI_CLI_AUTH=magic assert_error 78 "list.sh: error: OCI_CLI_AUTH is 'magic'; known are api_key, security_token" \
    "${PROJECT}/scripts/list.sh"
}
