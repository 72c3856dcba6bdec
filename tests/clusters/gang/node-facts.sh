#!/usr/bin/env bash
# What this node tells the others.
set -Eeuo pipefail
echo "greeting=hello from ${NODE_NAME}"
