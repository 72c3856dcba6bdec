# shellcheck shell=bash
# Sourced by both start scripts: what every node of a Horovod cluster needs.

# check_node: end with 78 where something is not set, or there is no entry point.
check_node() {
  require NODE_NAME NODE_ADDRESS NODE_DIR NODES_DIR NODE_INTERFACE EPHEMERAL CODE_DIR \
    HOROVOD_FRAMEWORK SSH_PORT SLOTS
  [[ "${EPHEMERAL}" == 1 ]] || die 78 "a Horovod cluster has no service that could be kept; give it an entry point instead of --keep"
  require ENTRY_POINT ENTRY_ARGS_FILE
}
