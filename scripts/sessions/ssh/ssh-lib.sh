# shellcheck shell=bash
# Sourced by both scripts of this kind. Sets no option, runs nothing.

# find_programs: set `sshd` and `keygen`, by their paths, as sshd wants it; end with 78 where one is missing.
# shellcheck disable=SC2034 # the caller's
find_programs() {
  local path="${PATH}:/usr/sbin:/usr/local/sbin:/sbin"
  sshd="$(PATH="${path}" command -v sshd || :)"
  keygen="$(PATH="${path}" command -v ssh-keygen || :)"
  [[ -n "${sshd}" && -n "${keygen}" ]] ||
    die 78 "a session of ssh needs sshd: on this machine install openssh-server; an image gets it with SYSTEM_PACKAGES=openssh-server"
}

# node_user: print the name of this node's user; end with 78 where it has none.
node_user() {
  id -un 2>/dev/null ||
    die 78 "the user $(id -u) of this node has no name in /etc/passwd, and sshd wants one: build the image with RUN_AS=1000"
}
