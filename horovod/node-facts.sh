#!/usr/bin/env bash
# Prints what a node tells the others: its public key, made for this launch, and the number of its ranks.
# common/README.md says what this script is given.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"

require MODE NODE_DIR
exec python -I "${here}/launcher" facts
