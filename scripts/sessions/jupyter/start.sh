#!/usr/bin/env bash
# A session of JupyterLab. scripts/sessions/README.md says what a session's start script is given.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../../../common/start-lib.sh"
# shellcheck source=scripts/sessions/session-lib.sh
source "${here}/../session-lib.sh"

require NODE_DIR NODE_ADDRESS OUTPUT_DIR CODE_DIR SESSION_PORT IDLE_LIMIT
need_modules jupyter jupyterlab jupyter_server_proxy
enter_session_folder
unset "${UNNEEDED[@]}"
# Where Client() says that the dashboard is: a path of this server, which fetches it for the browser.
dashboard="${IN_DASHBOARD:-${NODE_ADDRESS}:${DASHBOARD_PORT:-8787}}"
export DASK_DISTRIBUTED__DASHBOARD__LINK="/proxy/${dashboard}/status"
SESSION_ADDRESS="$(session_address)"
export SESSION_ADDRESS PROXIED_HOST="${dashboard%:*}"
# -E: a random.py of the user's is for notebooks, and not for the server.
exec python -E "${here}/serve.py"
