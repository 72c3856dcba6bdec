# shellcheck shell=bash
# Backend `local`: nodes are process trees of this machine. Sourced by the scripts; common/lib.sh is there already.
# Every backend has these functions; CONTRIBUTING.md says what each must do.

# backend_most_workers: what one machine takes. Addresses 127.0.0.1 to 127.0.0.254, less main and some for a second cluster.
backend_most_workers() { echo 250; }

# backend_check [--json] <plan: print what would be sent, JSON here in any case, changing nothing; end where it cannot be.
backend_check() { cluster local-check; }

# backend_prepare FRAMEWORK PYTHON: make what nodes need; print the interpreter they get.
backend_prepare() {
  if [[ -n "$2" ]]; then
    cluster prepare "$1" --python "$2"
  else
    cluster prepare "$1"
  fi
}

# backend_submit PYTHON <plan: start all nodes, or none; print the cluster's name.
backend_submit() { cluster local-submit --python "$1"; }

# backend_run PYTHON <plan: the same, then show progress and logs to the end; exit with the cluster's code. It takes the
# place of this shell, so that its signals are those of the process that knows what has been started.
backend_run() { exec_cluster local-submit --python "$1" --follow; }

# backend_status [--json] [NAME], backend_list [--json] [--all], backend_logs [--follow] [--node NODE] [NAME]: on stdout.
backend_status() { cluster local-status "$@"; }
backend_list() { cluster local-list "$@"; }
backend_logs() { cluster local-logs "$@"; }

# backend_scale NAME WORKERS: add workers, or end some; print how many there are.
backend_scale() { cluster local-scale --most-workers "$(backend_most_workers)" -- "$@"; }

# backend_stop [--delete] [NAME]: return when nothing of it runs.
backend_stop() { cluster local-stop "$@"; }
