#!/usr/bin/env bash
# Usage: session.sh KIND [NAME] [option...]
#
# Start a session: a cluster whose main runs a server for you alone, in your code's folder, with a framework's packages.
# session.sh prints once how to reach it, follows it to its end, and ends it at Ctrl-C. It ends by itself after its TTL,
# and when nobody has used it for its idle limit; but never while a notebook cell is running.
#
#   KIND                jupyter: JupyterLab; ssh: a shell, with scp, sftp and editors; tensorboard: TensorBoard; or a
#                       folder of yours in scripts/sessions
#   NAME                its name, as --name
#   --framework NAME    whose packages it has: dask (default), horovod, pytorch, ray, tensorflow
#   --workers N         N workers for Client() of Dask; default 0: main computes alone, and scale.sh adds workers
#   --in CLUSTER        a session beside another cluster: jupyter on this machine, whose Client() connects to that one;
#                       tensorboard on its outputs, also when it has ended
#   --idle DURATION     end it after this time without use; default 1h; 0 never
#   --ttl DURATION      end it after this time; default 8h
#   --key FILE          the public key that may log in (ssh; repeatable); default: each ~/.ssh/id_*.pub
#   --open              open it in the browser
#   --code DIR          the folder of your code; default: the folder that you are in. On this machine it is that folder
#                       itself, elsewhere a copy, which comes back in the outputs
#   --python PATH       use your own Python environment, instead of one made from the framework's env.yaml
#   --with PACKAGES     add packages to that environment, for this session (repeatable): pandas,torchvision 'a>=2,<3'
#   --env NAME=VALUE    set a variable (repeatable). NAME alone: with the value of your environment
#   --env-plain NAME=VALUE
#                       the same for what looks like a secret and is none. With ARGS alone: the script's arguments
#   --env-file FILE     the same for each line NAME=VALUE of a file (repeatable). Of two values the later one wins
#   --name NAME         its name; default: the kind's and a random part
#   --detach            do not wait for the end: print its name and return; connect.sh NAME says how to reach it
#   --dry-run           print exactly what would be run, and change nothing
#   --json              with --dry-run or --detach: print JSON
#   --backend NAME      where it runs: local (default), docker, oci or kubernetes
#   --queue NAME        wait in this queue of Kueue's (kubernetes)
#   --priority NAME     wait there with this priority, a WorkloadPriorityClass (kubernetes)
#   --wait-for-quota DURATION
#                       wait there for this time at most, such as 2h; default: no limit (kubernetes)
#   --version           the release or the commit that this is
#   -h, --help          this text
#
# Examples:
#   session.sh jupyter --workers 3      JupyterLab on main of a Dask cluster
#   session.sh ssh desk --key ~/.ssh/id_ed25519.pub --backend oci
#   session.sh tensorboard --in mine --open
#
# stdout: what the session's server prints; with --detach only the session's name. The address with its token goes to
# the terminal; if stderr is none, to a file that only you can read. docs/sessions.md is the guide.
# Exit: 0 idle, or ended from inside; 2 wrong usage; 69 backend unavailable; 75 its TTL is over; 77 not permitted; 78 bad
# settings; 143 stopped.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb session "$@"
