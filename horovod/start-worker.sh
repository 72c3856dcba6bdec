#!/usr/bin/env bash
# Worker of a Horovod cluster: an ssh server by which main starts this node's ranks.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"

require NODE_NAME NODE_ADDRESS NODE_DIR NODES_DIR NODE_INTERFACE EPHEMERAL CODE_DIR HOROVOD_FRAMEWORK SSH_PORT SLOTS
[[ "${EPHEMERAL}" == 1 ]] || die 78 "a Horovod cluster has no service that could be kept; give it an entry point instead of --keep"
require ENTRY_POINT ENTRY_ARGS_FILE
exec python -I "${here}/launcher" serve
