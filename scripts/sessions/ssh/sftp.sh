#!/usr/bin/env bash
# Become sftp's server, wherever the system has it.
for server in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/libexec/sftp-server /usr/lib/ssh/sftp-server; do
  [[ ! -x "${server}" ]] || exec "${server}"
done
echo "there is no sftp-server here; it comes with openssh-server" >&2
exit 1
