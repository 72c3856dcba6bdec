#!/usr/bin/env bash
# Usage: images.sh <build|push|pull-check|size> [framework...] [--to-push]
#
# What `make build push pull-check size` do: images of the frameworks named, or of all that have a Dockerfile; without a
# name, pull-check and size take those that were pushed, or built.
#
#   build        build them, at the same time; with --to-push check beforehand what a push will need
#   push         push what was built last, and record its digest: launches on OCI run exactly that
#   pull-check   pull that back by its digest, and see that it is what was built and that it starts
#   size         print the layers of what was built last
#   -h, --help   this text
#
# Settings, from the environment or config.env: REGISTRY TAG CODE_DIR EXTRA_ENV ENV_FILE SYSTEM_PACKAGES BASE_IMAGE RUN_AS
# PLATFORM DOCKER BUILD_FLAGS; config.env.example explains each.
#
# .images/ keeps for each framework: its record (<framework>.json), the exact list of what its image holds
# (<framework>.packages.txt), and all that the engine printed (<framework>.log).
#
# Exit: 0 done; 2 wrong usage; 69 the engine or the registry failed; 77 the registry wants a login; 78 bad settings.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  build | push | pull-check | size) exec_cluster images "$@" ;;
  *) usage_error "expected build, push, pull-check or size, got '${1:-nothing}'" ;;
esac
