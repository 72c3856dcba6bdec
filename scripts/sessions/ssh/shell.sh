#!/usr/bin/env bash
# shell.sh ENVIRONMENT: what sshd runs for each session: the user's shell, or a command, in the node's environment.
# shellcheck source=/dev/null
source "$1"
shell="${SHELL:-/bin/bash}"
case "${SSH_ORIGINAL_COMMAND:-}" in
  "") exec "${shell}" ;;
  session-sftp) exec "${BASH_SOURCE[0]%/*}/sftp.sh" ;;
  *) exec "${shell}" -c "${SSH_ORIGINAL_COMMAND}" ;;
esac
