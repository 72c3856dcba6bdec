#!/usr/bin/env bash
# Ready at once; runs the entry point.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
run_session_alone
echo "greeting=hello" >"${READY_FILE}"
[[ "${EPHEMERAL}" == 1 ]] || exec sleep 1000
PYTHONPATH="$(changed_imports "${here}")" run_entry_point
