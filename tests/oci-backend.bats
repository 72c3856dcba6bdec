#!/usr/bin/env bats
# scripts/backends/oci.sh: what it asks Python for, and what can be said without an account: settings and dry runs.
# shellcheck disable=SC2016 # single quotes hold the text of scripts

load test_helper.bash
load project.bash

COMPARTMENT=ocid1.compartment.oc1..aaaacompartment
DATA_SCIENCE_PROJECT=ocid1.datascienceproject.oc1.iad.aaaaproject

setup() {
  local name
  isolate
  make_project
  while IFS='=' read -r name _; do
    [[ ! "${name}" =~ ^[A-Z_]+$ ]] || unset "${name}"
  done <"${ROOT}/scripts/backends/oci.env"
  unset WORK_DIR CODE_URI
  export BACKEND=oci
}

# Have a .venv in the project with the packages of the checkout's own, all stamps, an oci-cli that notes and refuses, and
# no way out: whoever dials anybody is noted in ${BATS_TEST_TMPDIR}/dialed.
use_oci_tools() {
  local tools="${ROOT}/.venv/bin/python" venv="${PROJECT}/.venv" name
  "${tools}" -I -c 'import fsspec, jinja2, oci, ocifs' 2>/dev/null || skip "no ocifs in .venv; run: ./scripts/dev-setup.sh python"
  mkdir -p "${venv}/bin"
  cp "${ROOT}/.venv/pyvenv.cfg" "${venv}"
  ln -s "$("${tools}" -I -c 'import os, sys; print(os.path.realpath(sys.executable))')" "${venv}/bin/python"
  ln -s "${ROOT}/.venv/lib" "${venv}/lib"
  printf '#!/bin/sh\necho "$*" >>"%s"\nexit 97\n' "${BATS_TEST_TMPDIR}/oci-calls" >"${venv}/bin/oci"
  chmod +x "${venv}/bin/oci"
  for name in tools:requirements.txt oci-tools:requirements-oci.txt; do
    : >"${venv}/.${name%%:*}-$("${tools}" -I -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest()[:16])' "${PROJECT}/common/${name##*:}")"
  done
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
  export WORK_DIR=oci://bucket@ns/work
}

launch() { "${PROJECT}/scripts/launch.sh" "$@"; }

# Nobody was dialed, oci-cli was not called, and nothing is kept of a cluster.
assert_nothing_sent() {
  assert [ ! -e "${BATS_TEST_TMPDIR}/dialed" ]
  assert [ ! -e "${BATS_TEST_TMPDIR}/oci-calls" ]
  assert [ ! -e "${PROJECT}/.clusters" ]
}

# --- The functions of a backend ---------------------------------------------------------------------------------------

# Call a function of the backend where the door to Python only tells what it is asked.
asked() { # function, argument...
  bash -c '
set -Eeuo pipefail
source "$1/common/lib.sh"
cluster() { printf "cluster:"; printf " <%s>" "$@"; echo; }
exec_cluster() { printf "exec:"; printf " <%s>" "$@"; echo; exit 0; }
source "$1/scripts/backends/oci.sh"
shift
"$@"' launch.sh "${PROJECT}" "$@"
}

assert_asked() { # text, function, argument...
  local text="$1"
  shift
  run -0 --separate-stderr asked "$@"
  assert_output "${text}"
  assert_stderr ""
}

@test "oci backend: each function is one verb" {
  assert_asked "cluster: <oci-check>" backend_check
  assert_asked "cluster: <oci-check> <--json>" backend_check --json
  assert_asked "cluster: <oci-prepare>" backend_prepare dask ""
  assert_asked "cluster: <oci-submit>" backend_submit /a/python
  assert_asked "cluster: <oci-status> <--json> <my cluster>" backend_status --json "my cluster"
  assert_asked "cluster: <oci-list> <--all>" backend_list --all
  assert_asked "cluster: <oci-logs> <--follow> <--node=MAIN> <demo>" backend_logs --follow --node=MAIN demo
  assert_asked "cluster: <oci-stop> <--delete> <demo>" backend_stop --delete demo
}

@test "oci backend: a launch that is followed takes the place of its shell" {
  run -0 --separate-stderr asked backend_run /a/python
  assert_output "exec: <oci-submit> <--follow>"
}

@test "oci backend: fewer workers are no option" {
  assert_asked "cluster: <oci-scale> <--most-workers> <999> <--> <demo> <-1>" backend_scale demo -1
}

@test "oci backend: sourcing it has no effect" {
  assert_asked 999 backend_most_workers
  run -0 bash -c 'set -Eeuo pipefail; source "$1/scripts/backends/oci.sh"; declare -F | sed -n "s/^declare -f //p"' sh "${PROJECT}"
  assert_output "$(printf '%s\n' backend_{check,list,logs,most_workers,prepare,run,scale,status,stop,submit})"
}

@test "oci backend: every verb is one that there is" {
  local verb count=0
  use_oci_tools
  while read -r verb; do
    run -0 --separate-stderr env PYTHONPATH="${PROJECT}/common" "${PROJECT}/.venv/bin/python" -m oci_cluster "${verb}" --help
    count=$((count + 1))
  done < <(grep -oE 'oci-[a-z]+' "${PROJECT}/scripts/backends/oci.sh" | sort -u)
  assert_equal "${count}" 8
}

# --- Settings ---------------------------------------------------------------------------------------------------------

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
  IMAGE=dask assert_error 78 "launch.sh: error: bad settings: IMAGE: 'dask' is not an image with a tag" launch dask 2 --dry-run
  WORK_DIR=file:///tmp assert_error 78 "launch.sh: error: bad settings: WORK_DIR: file:///tmp is not seen by all nodes" \
    launch dask 2 --dry-run
  assert_nothing_sent
}

@test "oci backend: a secret is refused, and not shown" {
  use_oci_tools
  use_settings
  assert_error 78 "launch.sh: error: bad settings: HF_TOKEN would stand in the Job's definition" \
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
SHAPE=VM.GPU.A10.1
END
  unset BACKEND
  SHAPE=VM.GPU2.1 launch dask 2 --dry-run --json >"${BATS_TEST_TMPDIR}/planned"
  run -0 from_json 'found["job"]["compartmentId"], found["job"]["jobInfrastructureConfigurationDetails"]["shapeName"]' \
    <"${BATS_TEST_TMPDIR}/planned"
  assert_output "${COMPARTMENT} VM.GPU2.1"
  launch dask 2 --dry-run --json >"${BATS_TEST_TMPDIR}/planned"
  run -0 from_json 'found["job"]["jobInfrastructureConfigurationDetails"]["shapeName"]' <"${BATS_TEST_TMPDIR}/planned"
  assert_output VM.GPU.A10.1
  assert_nothing_sent
}

# --- Dry runs ---------------------------------------------------------------------------------------------------------

@test "oci backend: a dry run needs no account and no network, and changes nothing" {
  use_oci_tools
  use_settings
  assert [ ! -e "${HOME}/.oci" ]
  run -0 --separate-stderr launch dask 2 --dry-run --name demo
  assert_stderr ""
  assert_line --index 0 "# What a launch sends, as commands of oci-cli. Nothing has been sent."
  assert_equal "$(grep -c 'oci data-science job create' <<<"${output}")" 1
  assert_equal "$(grep -c 'oci data-science job-run create' <<<"${output}")" 3
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

@test "oci backend: a dry run is what oci-cli gets" {
  local bin="${BATS_TEST_TMPDIR}/bin"
  use_oci_tools
  use_settings
  launch dask 1 --dry-run --name demo >"${BATS_TEST_TMPDIR}/script"
  mkdir "${bin}"
  printf '#!/bin/sh\nfor word; do case "$word" in --job-id | --display-name) shown=1 ;; *) [ -z "${shown:-}" ] || echo "$word" >>"$CALLS"; shown= ;; esac; done\necho ocid1.job\n' >"${bin}/oci"
  chmod +x "${bin}/oci"
  CALLS="${BATS_TEST_TMPDIR}/sent" PATH="${bin}:${PATH}" run -0 --separate-stderr bash -eu "${BATS_TEST_TMPDIR}/script"
  assert_equal "$(cat "${BATS_TEST_TMPDIR}/sent")" "$(printf '%s\n' demo demo-MAIN ocid1.job demo-WORKER_1 ocid1.job)"
}

# --- A command line that cannot be ------------------------------------------------------------------------------------

@test "oci backend: --python is for nodes of this machine" {
  use_oci_tools
  use_settings
  assert_error 2 "launch.sh: error: --python is for nodes of this machine; on OCI they have the Python of their image" \
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
  local script arguments
  use_oci_tools
  use_settings
  while read -r script arguments; do
    # shellcheck disable=SC2086 # words
    assert_error 78 "${script}: error: no identity for OCI: OCI_CLI_AUTH=api_key, profile DEFAULT of " \
      "${PROJECT}/scripts/${script}" ${arguments}
    assert_regex "${stderr}" 'make one: oci setup config \(API key\) or oci session authenticate'
  done <<'END'
launch.sh dask 2
launch.sh dask 2 --detach
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
