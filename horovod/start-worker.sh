#!/usr/bin/env bash
# Worker of a Horovod cluster: an ssh server by which main starts this node's ranks.
# common/README.md says what a start script is given and what it must do.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"
# shellcheck source=horovod/horovod-lib.sh
source "${here}/horovod-lib.sh"

check_node
exec python -I "${here}/launcher" serve
