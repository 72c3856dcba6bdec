#!/usr/bin/env bash
# Ready at once; runs the entry point, as the workers do.
set -Eeuo pipefail
# shellcheck source=common/start-lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common/start-lib.sh"
run_session_alone
echo "workers=${WORKER_ADDRESSES}" >"${READY_FILE}"
run_entry_point
