#!/usr/bin/env bash
# Usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND...
#
# Remove what Ray's wheel brings and no node loads: 35 MB of Java, for workers that are written in it, and 8 MB by which
# the dashboard's JavaScript is debugged.
#
#   PYTHON               the environment's interpreter
#   CACHE_DIR            a directory that is kept; not used
#   INSTALL_COMMAND...   installs what is named after it into the environment; not used
set -Eeuo pipefail
if [[ $# -lt 3 ]]; then
  printf 'usage: %s PYTHON CACHE_DIR INSTALL_COMMAND...\n' "${0##*/}" >&2
  exit 2
fi
# Not ray's own word for where it is: an environment of added packages sees that of another one.
packages="$("$1" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
rm -rf "${packages}/ray/jars"
if [[ -d "${packages}/ray/dashboard/client/build" ]]; then
  find "${packages}/ray/dashboard/client/build" -type f -name '*.map' -delete
fi
