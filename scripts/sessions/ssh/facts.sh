#!/usr/bin/env bash
# Make the key of this node's ssh server, and print its public half, by which whoever connects knows the node.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../../../common/start-lib.sh"
# shellcheck source=scripts/sessions/ssh/ssh-lib.sh
source "${here}/ssh-lib.sh"

require NODE_DIR
find_programs
user="$(node_user)"
mkdir -p "${NODE_DIR}/ssh"
rm -f "${NODE_DIR}/ssh/host_key" "${NODE_DIR}/ssh/host_key.pub"
"${keygen}" -q -t ed25519 -N '' -C '' -f "${NODE_DIR}/ssh/host_key"
read -r kind key _ <"${NODE_DIR}/ssh/host_key.pub"
printf '%s\n' "ssh_host_key=${kind} ${key}" "ssh_user=${user}"
