#!/usr/bin/env bash
# Worker or parameter server of a TensorFlow cluster: MODE says which.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=tensorflow/tensorflow-lib.sh
source "${here}/tensorflow-lib.sh"

run_task
