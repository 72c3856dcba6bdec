#!/usr/bin/env bash
# A session of TensorBoard. scripts/sessions/README.md says what a session's start script is given.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../../../common/start-lib.sh"
# shellcheck source=scripts/sessions/session-lib.sh
source "${here}/../session-lib.sh"

require NODE_DIR NODE_ADDRESS CODE_DIR SESSION_PORT IDLE_LIMIT LAUNCH_ID
need_modules tensorboard tensorboard
LOGDIR="${LOGDIR:-${IN_OUTPUTS:-${CODE_DIR}}}"
SESSION_ADDRESS="$(session_address)"
export LOGDIR SESSION_ADDRESS
unset LAUNCH_KEY
# It keeps notes on itself in the machine's own temporary directory, for all to read.
export TMPDIR="${NODE_DIR}"
exec python -E "${here}/serve.py"
