#!/usr/bin/env bash
# Ready at once; runs the entry point.
set -Eeuo pipefail
# shellcheck source=common/start-lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common/start-lib.sh"
run_session_alone
echo "greeting=hello" >"${READY_FILE}"
[[ "${EPHEMERAL}" == 1 ]] || exec sleep 1000
run_entry_point
