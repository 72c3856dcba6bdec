# shellcheck shell=bash
# Sourced by both start scripts: what scheduler, workers and the entry point's client have in common.

# configure_dask: the scheduler's address, encryption and log level, in the variables that Dask itself reads, so that
# a plain Client() of the entry point connects.
configure_dask() {
  local protocol=tcp role
  if [[ -n "${TLS_CERT_FILE:-}" ]]; then
    protocol=tls
    # Client("10.0.0.5:8786") means this protocol too.
    export DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME=tls
    export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
    export DASK_DISTRIBUTED__COMM__TLS__CA_FILE="${TLS_CERT_FILE}"
    for role in SCHEDULER WORKER CLIENT; do
      export "DASK_DISTRIBUTED__COMM__TLS__${role}__CERT=${TLS_CERT_FILE}"
      export "DASK_DISTRIBUTED__COMM__TLS__${role}__KEY=${TLS_KEY_FILE}"
    done
  fi
  export DASK_SCHEDULER_ADDRESS="${protocol}://${MAIN_ADDRESS}:${SCHEDULER_PORT}"
  # ADS's name: scripts written for it connect to "${SCHEDULER_IP}:8786".
  export SCHEDULER_IP="${MAIN_ADDRESS}"
  export DASK_DISTRIBUTED__LOGGING="{'distributed': '${LOG_LEVEL}'}"
  # Else workers that the entry point starts, and whatever spills to disk, leave dask-scratch-space in /tmp.
  export DASK_TEMPORARY_DIRECTORY="${DASK_TEMPORARY_DIRECTORY:-${NODE_DIR}}"
  # The log has at once what a task or the entry point prints.
  export PYTHONUNBUFFERED=1
}
