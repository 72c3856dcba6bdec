#!/usr/bin/env bash
# Greets who has the token, and leaves a file of that name in the session's folder.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../../../common/start-lib.sh"
# shellcheck source=scripts/sessions/session-lib.sh
source "${here}/../session-lib.sh"
enter_session_folder
SESSION_ADDRESS="$(session_address)"
export SESSION_ADDRESS
exec python -E "${here}/serve.py"
