# Loaded by the tests of dask/start-*.sh, after project.bash: what the agent gives these scripts, and how they say that they
# cannot go on.

# Be main of a cluster of 1 + 2, whose entry point has arguments.
make_dask_node() {
  unset PYTHONPATH PYTHONUNBUFFERED SCHEDULER_IP "${!DASK_@}"
  NODE_DIR="${BATS_TEST_TMPDIR}/node dir"
  export CLIENT_DIR="${BATS_TEST_TMPDIR}/client's dir"
  export NODE_DIR MODE=MAIN NODE_RANK=0 NODE_NAME=MAIN WORKER_COUNT=2 PS_COUNT=0 CLUSTER_NAME=demo TIMEOUT=60 EPHEMERAL=1
  export NODE_ADDRESS=10.0.0.1 MAIN_ADDRESS=10.0.0.1 READY_FILE="${NODE_DIR}/ready"
  export CODE_DIR="${PWD}" ENTRY_POINT="my train.py" ENTRY_ARGS_FILE="${NODE_DIR}/args" OUTPUT_DIR="${PWD}"
  export SCHEDULER_PORT=8786 DASHBOARD_PORT=8787 WORKER_PORTS=8700:8800 NANNY_PORTS=3000:3100
  export NPROCS=1 NTHREAD=auto DEATH_TIMEOUT=60 LOG_LEVEL=warning
  mkdir "${NODE_DIR}" "${CLIENT_DIR}"
  printf '%s\0' --folds 3 'a b' '' >"${ENTRY_ARGS_FILE}"
}

use_tls() { export TLS_CERT_FILE="${NODE_DIR}/cert.pem" TLS_KEY_FILE="${NODE_DIR}/key.pem"; }

# What the scripts set for Dask, without and with a certificate.
# shellcheck disable=SC2034 # the tests compare with it
plain_environment="\
DASK_DISTRIBUTED__LOGGING={'distributed': 'warning'}
DASK_SCHEDULER_ADDRESS=tcp://10.0.0.1:8786
DASK_TEMPORARY_DIRECTORY=${BATS_TEST_TMPDIR:-}/node dir
PYTHONUNBUFFERED=1
SCHEDULER_IP=10.0.0.1"

tls_environment() {
  printf '%s\n' "\
DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME=tls
DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
DASK_DISTRIBUTED__COMM__TLS__CA_FILE=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=${NODE_DIR}/key.pem
DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__CERT=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__KEY=${NODE_DIR}/key.pem
DASK_DISTRIBUTED__COMM__TLS__WORKER__CERT=${NODE_DIR}/cert.pem
DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY=${NODE_DIR}/key.pem
DASK_DISTRIBUTED__LOGGING={'distributed': 'warning'}
DASK_SCHEDULER_ADDRESS=tls://10.0.0.1:8786
DASK_TEMPORARY_DIRECTORY=${NODE_DIR}
PYTHONUNBUFFERED=1
SCHEDULER_IP=10.0.0.1"
}

# One line on stderr, as die of start-lib.sh writes it.
# shellcheck disable=SC2154 # `finish` and bats set it
assert_died() { # code, script, text
  assert_equal "${status}" "$1"
  assert_equal "${stderr_lines[${#stderr_lines[@]} - 1]#* }" "$2: error: $3"
}
