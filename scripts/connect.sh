#!/usr/bin/env bash
# Usage: connect.sh [NAME] [--port PORT]... [--node NODE] [--open] [--check]
#        connect.sh [NAME] --python [--check]
#
# Make a port of a node reachable on 127.0.0.1 of this machine, and print its URL. Ctrl-C ends that, and nothing of the
# cluster. Without --port it is the session's (session.sh), or the dashboard. With the backend local nothing is to be
# done: the URL is printed. A session that has not started yet is waited for.
#
#   NAME            the cluster; you may leave it out while only one cluster runs
#   --port PORT     a name (dashboard, scheduler, jupyter), a number, or HERE:THERE with a port of this machine first;
#                   may be given several times. Without HERE it is the same number here if that is free
#   --node NODE     the node: MAIN (default), WORKER_1...
#   --open          open the URL in the browser
#   --python        print what a program on this machine needs to take part: Client() of Dask, ray.init()
#   --check         return at once: 0 if something answers there, otherwise 69
#   --backend NAME  where the cluster runs: local (default), docker, oci or kubernetes
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   connect.sh                          the dashboard of the only cluster that runs
#   connect.sh mine --port 6006 --open  a server of your own (EXPOSE=6006), in the browser
#   connect.sh mine --node WORKER_1 --port 8080:9000
#   connect.sh mine --python            what Client() or ray.init() here needs
#
# stdout: the URL; with several ports, each after the port's name. Exit: 0 ended by Ctrl-C, or with the cluster; 2 wrong
# usage, or no such cluster, node or port; 69 no way there; 77 not permitted; 78 bad settings.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb connect "$@"
