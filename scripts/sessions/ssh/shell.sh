#!/usr/bin/env bash
# shell.sh ENVIRONMENT: what sshd runs for each session: the user's shell, or a command, in the node's environment.
# shellcheck source=/dev/null
source "$1"
shell="${SHELL:-/bin/bash}"
case "${SSH_ORIGINAL_COMMAND:-}" in
  "") exec "${shell}" ;;
  */sftp.sh) exec "${SSH_ORIGINAL_COMMAND}" ;;
  *) exec "${shell}" -c "${SSH_ORIGINAL_COMMAND}" ;;
esac
