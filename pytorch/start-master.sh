#!/usr/bin/env bash
# Main of a PyTorch cluster: it hosts the rendezvous, and trains too.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=pytorch/pytorch-lib.sh
source "${here}/pytorch-lib.sh"

require READY_FILE
run_session_alone
run_launcher is_host=1
