#!/usr/bin/env bash
# Usage: images.sh <build|push|pin-base> [framework...] [--to-push]
#
# Make the frameworks' images. `make build push pin-base` runs this script. Without a framework, build and push take all
# frameworks that have a Dockerfile.
#
#   build        build the images, at the same time; with --to-push first check what a push will need
#   push         push the images that were built last, and record their digests: launches on OCI run exactly these
#   pin-base     print the base image by its digest, as a line for config.env: asks its registry
#   -h, --help   this text
#
# Examples:
#   images.sh build dask pytorch
#   images.sh push dask                 REGISTRY says where to
#   images.sh pin-base
#
# Settings, from the environment or config.env: REGISTRY TAG CODE_DIR EXTRA_ENV TORCH ENV_FILE SYSTEM_PACKAGES BASE_IMAGE
# RUN_AS PLATFORM DOCKER BUILD_FLAGS. config.env.example explains each.
#
# .images/ keeps for each framework: its record (<framework>.json), the exact list of the image's packages
# (<framework>.packages.txt), the same as a bill of materials (<framework>.sbom.json), and everything that the engine
# printed (<framework>.log).
#
# Exit: 0 done; 2 wrong usage; 69 the engine or the registry failed; 77 the registry wants a login; 78 bad settings;
# 143 stopped.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb images "$@"
