#!/usr/bin/env bash
# Runs the entry point.
set -Eeuo pipefail
# shellcheck source=common/start-lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common/start-lib.sh"
run_entry_point
