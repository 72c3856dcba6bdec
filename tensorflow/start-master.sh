#!/usr/bin/env bash
# Main of a TensorFlow cluster: the first worker, or the chief, which coordinates, where there are parameter servers.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=tensorflow/tensorflow-lib.sh
source "${here}/tensorflow-lib.sh"

require READY_FILE
run_session_alone
run_task
