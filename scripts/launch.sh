#!/usr/bin/env bash
# Usage: launch.sh <framework> <workers> [option...] [-- argument of the entry point...]
#
# Start a cluster of one main node and <workers> workers. The cluster runs the framework's example, or your own script.
# launch.sh shows the nodes' logs until the cluster ends, and exits with the script's code. Ctrl-C stops the cluster.
#
#   <framework>         a folder of this project with start scripts: dask, horovod, pytorch, ray, tensorflow
#   <workers>           how many besides main. 0: main alone, with all CPUs and GPUs of its machine
#   --entry FILE        run your script, instead of the example
#   --module NAME       run a module instead, as python -m does: package.train
#   --code DIR          the folder of your code; default: the script's folder, for a module this folder. Your script
#                       runs in it, and workers can import from it
#   --python PATH       use your own Python environment, instead of one made from the framework's env.yaml
#   --with PACKAGES     add packages to that environment, for this launch (repeatable): pandas,torchvision 'a>=2,<3'
#   --env NAME=VALUE    set a variable on every node (repeatable). NAME alone: with the value of your environment
#   --env-plain NAME=VALUE
#                       the same for what looks like a secret and is none. With ARGS alone: the script's arguments
#   --env-file FILE     the same for each line NAME=VALUE of a file (repeatable). Of two values the later one wins
#   --outputs FOLDERS   keep what your script writes to these folders of its code, as outputs: checkpoints,runs
#   --name NAME         the cluster's name; default: the framework's and a random part
#   --ps N              add N parameter servers to the workers (tensorflow)
#   --ttl DURATION      end the cluster after this time, such as 90s, 30m or 2h
#   --keep              run no script: keep the cluster until its TTL is over or stop.sh ends it
#   --detach            do not wait for the end: print the cluster's name and return
#   --wait              with --detach: return when the cluster is ready; if it fails before, with its exit code
#   --dry-run           print exactly what would be run, and change nothing
#   --json              with --dry-run or --detach: print JSON
#   --backend NAME      where nodes run: local (default), docker, oci or kubernetes
#   --queue NAME        wait in this queue of Kueue's (kubernetes)
#   --priority NAME     wait there with this priority, a WorkloadPriorityClass (kubernetes)
#   --wait-for-quota DURATION
#                       wait there for this time at most, such as 2h; default: no limit (kubernetes)
#   --version           the release or the commit that this is
#   -h, --help          this text
#
# Examples:
#   launch.sh dask 3                                      the example, on three workers
#   launch.sh pytorch 2 --entry train.py -- --epochs 10   your own script, and its arguments
#   launch.sh pytorch 0 --entry train.py                  one node: a process for each GPU of this machine
#   launch.sh dask 3 --keep --detach --ttl 2h             a cluster for a notebook, for two hours
#   launch.sh ray 4 --backend oci --dry-run               what would be sent to OCI
#
# A value may also follow its option's =, as in --name=mine.
# Options win over environment variables, environment variables over config.env, and config.env over the defaults.
# config.env.example lists all settings.
#
# stdout: the nodes' logs, each line after its node's name. With --detach: only the cluster's name.
# Exit: the script's own code; 2 wrong usage; 69 backend unavailable; 70 a bug of ours; 75 timed out; 76 a needed node
# lost; 77 not permitted; 78 bad settings; 143 stopped.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb launch "$@"
