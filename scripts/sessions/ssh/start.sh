#!/usr/bin/env bash
# A session of ssh: a server of this node's user, without root, for the keys in SSH_AUTHORIZED, commas between.
# scripts/sessions/README.md says what a session's start script is given.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../../../common/start-lib.sh"
# shellcheck source=scripts/sessions/session-lib.sh
source "${here}/../session-lib.sh"
# shellcheck source=scripts/sessions/ssh/ssh-lib.sh
source "${here}/ssh-lib.sh"

require NODE_DIR NODE_ADDRESS OUTPUT_DIR CODE_DIR SESSION_PORT IDLE_LIMIT SSH_AUTHORIZED
find_programs
user="$(node_user)"
enter_session_folder
own="${NODE_DIR}/ssh"
printf '%s\n' "${SSH_AUTHORIZED//,/$'\n'}" >"${own}/authorized_keys"
SESSION_ADDRESS="$(session_address)"
export SESSION_ADDRESS
unset "${UNNEEDED[@]}" TERM "${!SSH_@}"
# What shells of the session begin with, as sshd gives them none of it: but for what is the connection's own.
declare -x >"${own}/environment"
printf 'cd %q\n' "${folder}" >>"${own}/environment"
# What is in the node's directory is nobody else's, which sshd cannot tell: StrictModes looks at /tmp, too. VERBOSE: its
# log, which serve.py alone reads, says first that it has begun.
cat >"${own}/config" <<CONFIG
HostKey "${own}/host_key"
AuthorizedKeysFile "${own//%/%%}/authorized_keys"
AuthenticationMethods publickey
AllowUsers ${user}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
LoginGraceTime 30
MaxAuthTries 6
ClientAliveInterval 30
ClientAliveCountMax 4
X11Forwarding no
PermitTunnel no
GatewayPorts no
PermitUserEnvironment no
PermitUserRC no
PrintMotd no
PrintLastLog no
LogLevel VERBOSE
Subsystem sftp session-sftp
ForceCommand $(printf '%q ' "${here}/shell.sh" "${own}/environment")
CONFIG
# Run by root, Debian's sshd wants this folder, which its service makes: where none has been started, there is none.
[[ ${EUID} -ne 0 || -e /run/sshd || ! -d /run ]] || mkdir -m 755 /run/sshd
"${sshd}" -t -f "${own}/config" || die 78 "sshd does not accept its configuration; the log says why"
exec python -E "${here}/serve.py" "${sshd}" "${own}/config"
