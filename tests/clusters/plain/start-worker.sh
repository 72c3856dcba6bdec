#!/usr/bin/env bash
# Works until it is ended, in a child and in a grandchild that has left the session.
set -Eeuo pipefail
setsid sleep 1000 &
sleep 1000 &
echo "worker works"
exec sleep 1000
