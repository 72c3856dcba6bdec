#!/usr/bin/env bash
# Usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND...
#
# Install tf-keras, Keras 2 for this TensorFlow, into an environment that holds what env.yaml lists. Without what it
# depends on, which is the package `tensorflow`: 550 MB more, over the files of `tensorflow-cpu`.
#
#   PYTHON               the environment's interpreter
#   CACHE_DIR            a directory that is kept; not used
#   INSTALL_COMMAND...   installs what is named after it into the environment
set -Eeuo pipefail
if [[ $# -lt 3 ]]; then
  printf 'usage: %s PYTHON CACHE_DIR INSTALL_COMMAND...\n' "${0##*/}" >&2
  exit 2
fi
shift 2
exec "$@" --no-deps tf-keras==2.21.0
