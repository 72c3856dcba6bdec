#!/usr/bin/env bash
# What a node of a Horovod cluster tells the others: its public key, made for this launch, and how many ranks it takes.
# common/README.md says what this script is given.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"

require MODE NODE_DIR
exec python -I "${here}/launcher" facts
