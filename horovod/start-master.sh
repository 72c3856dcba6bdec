#!/usr/bin/env bash
# Main of a Horovod cluster: starts the ranks of all nodes, as horovodrun does, and ends with their exit code.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=horovod/horovod-lib.sh
source "${here}/horovod-lib.sh"

run_session_alone
check_node
require READY_FILE TIMEOUT WORKER_COUNT RENDEZVOUS_PORT BLACKLIST_COOLDOWN
exec python -I "${here}/launcher" launch
