#!/usr/bin/env bash
# Usage: completion.sh
#
# Print what makes a shell complete the words behind these scripts at TAB: options, frameworks, backends, the names of
# clusters and of their nodes, and files for options that take one. Works in bash, also in the 3.2 of macOS, and in zsh.
#
#   -h, --help      this text
#
# Examples:
#   eval "$(./scripts/completion.sh)"                             in this shell; the same line in ~/.bashrc or ~/.zshrc,
#                                                                 with the whole path, in every new one
#   eval "$('/home/me/my project/scripts/completion.sh')"
#
# The words come from the header of the script that is typed, each time: a new option needs no second eval, a new script
# does. Clusters are those that this folder keeps of the backend that is meant. Neither an engine nor a cloud is asked.
# docs/terminals.md is the guide.
#
# stdout: a few lines for eval. Exit: 0 printed, 2 wrong usage.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

main() {
  local path names=()
  case "${1:-}" in
    "") ;;
    -h | --help) usage && exit 0 ;;
    *) usage_error "expected nothing, got '$1'" ;;
  esac
  unpack_wheel "${root}"
  for path in "${root}"/scripts/*.sh; do
    names+=("${path##*/}")
  done
  # Both shells understand these lines; the files are each for one.
  cat <<END
case "\${ZSH_VERSION:-}" in
  ?*) . $(printf %q "${root}/scripts/completion.zsh") ;;
  *) . $(printf %q "${root}/scripts/completion.bash") ;;
esac
_oci_cluster_add $(printf %q "${root}")$(printf ' %q' ${names[@]+"${names[@]}"})
END
}
main "$@"
