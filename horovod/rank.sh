#!/usr/bin/env bash
# One rank, on any node: the entry point, with its node's environment and what Horovod has told it (HOROVOD_RANK, ...).
# launcher/ starts it, on main for itself and on workers for main.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common/start-lib.sh
source "${here}/../common/start-lib.sh"

export HOROVOD_GLOO_IFACE="${NODE_INTERFACE}" NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-${NODE_INTERFACE}}"
# Each library takes all CPUs that it sees, ranks and nodes that share a machine would take them several times.
cpus="${NODE_CPUS:-$(nproc)}"
threads=$((cpus > HOROVOD_LOCAL_SIZE ? cpus / HOROVOD_LOCAL_SIZE : 1))
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${threads}}" TF_NUM_INTRAOP_THREADS="${TF_NUM_INTRAOP_THREADS:-${threads}}"
# The node's log has at once what a rank prints.
export PYTHONUNBUFFERED=1
# For the rank alone: what Horovod's Python listens on is to be on this node's address, not on all of the machine.
PYTHONPATH="$(changed_imports "${here}")"
# RANK would be taken for one of PyTorch's.
export PYTHONPATH ENTRY_RANK="${HOROVOD_RANK:-}"
run_entry_point
