#!/usr/bin/env bash
# Usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND...
#
# Install Horovod into an environment that holds what env.yaml lists. There are no wheels of it: one is built, once for
# each set of versions, and kept in CACHE_DIR. Needs a C++ compiler: g++, or what CXX names.
#
#   PYTHON               the environment's interpreter
#   CACHE_DIR            a directory that is kept
#   INSTALL_COMMAND...   installs what is named after it into the environment
#
# Exit: 0 installed; 69 the build failed; 78 something that it needs is not there.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [[ $# -lt 3 ]]; then
  printf 'usage: %s PYTHON CACHE_DIR INSTALL_COMMAND...\n' "${0##*/}" >&2
  exit 2
fi
exec "$1" -I "${here}/post-install/install.py" "$@"
