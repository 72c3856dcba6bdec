#!/usr/bin/env bash
# Main of a Horovod cluster: starts the ranks of all nodes, as horovodrun does, and ends with their exit code.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"

run_session_alone
require NODE_NAME NODE_ADDRESS NODE_DIR NODES_DIR NODE_INTERFACE EPHEMERAL CODE_DIR HOROVOD_FRAMEWORK SSH_PORT SLOTS
[[ "${EPHEMERAL}" == 1 ]] || die 78 "a Horovod cluster has no service that could be kept; give it an entry point instead of --keep"
require ENTRY_POINT ENTRY_ARGS_FILE READY_FILE TIMEOUT WORKER_COUNT RENDEZVOUS_PORT BLACKLIST_COOLDOWN
exec python -I "${here}/launcher" launch
