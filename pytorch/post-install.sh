#!/usr/bin/env bash
# Usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND...
#
# Check that torchvision and torchaudio, if somebody has added them, can be imported beside the torch of the environment.
# Both are compiled for one build of torch. PyPI's torchvision names torch 2.13.0, which torch's build for CPUs is too; it
# is compiled for the build with CUDA all the same. Without this check, a script finds that out on all nodes.
#
#   PYTHON               the environment's interpreter
#   CACHE_DIR            a directory that is kept; not used
#   INSTALL_COMMAND...   installs what is named after it into the environment; not used
#
# Exit: 0 they fit, or are not there; 2 wrong usage; 78 one does not fit, which the last line names.
set -Eeuo pipefail
if [[ $# -lt 3 ]]; then
  printf 'usage: %s PYTHON CACHE_DIR INSTALL_COMMAND...\n' "${0##*/}" >&2
  exit 2
fi
# -I: the folder pytorch/ and the working directory hide no package.
exec "$1" -I -c '
import importlib, sys
from importlib.metadata import PackageNotFoundError, version

for name in ("torchvision", "torchaudio"):
    try:
        own = version(name)
    except PackageNotFoundError:
        continue
    try:
        importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        torch, why = version("torch"), str(error).strip().partition("\n")[0]
        build = torch.partition("+")[2]
        wanted = name + "==" + own.partition("+")[0] + ("+" + build if build else "")
        sys.stderr.write(
            f"error: {name} {own} is not compiled for torch {torch}: {why}; "
            f"take both from one index, here {wanted}; pytorch/README.md says how\n"
        )
        sys.exit(78)
'
