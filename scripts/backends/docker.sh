# shellcheck shell=bash
# Backend `docker`: containers of an engine on a network of their own. Sourced by the scripts; common/lib.sh is there
# already. Every backend has these functions; CONTRIBUTING.md says what each must do.

# backend_most_workers: each has a client of the engine that follows its log, which takes 38 MB (docker 20.10).
backend_most_workers() { echo 100; }

# backend_check [--json] <plan: print what would be run, changing nothing; end where it cannot be.
backend_check() { cluster docker-check "$@"; }

# backend_prepare FRAMEWORK PYTHON: nodes bring their own environment, in their image; print the launcher's interpreter.
backend_prepare() { cluster docker-prepare; }

# backend_submit PYTHON <plan: start all nodes, or none; print the cluster's name.
backend_submit() { cluster docker-submit; }

# backend_run PYTHON <plan: the same, then show progress and logs to the end; exit with the cluster's code. It takes the
# place of this shell, so that its signals are those of the process that knows what has been started.
backend_run() { exec_cluster docker-submit --follow; }

# backend_status [--json] [NAME], backend_list [--json] [--all], backend_logs [--follow] [--node NODE] [NAME]: on stdout.
backend_status() { cluster docker-status "$@"; }
backend_list() { cluster docker-list "$@"; }
backend_logs() { cluster docker-logs "$@"; }

# backend_scale NAME WORKERS: add workers, or end some; print how many there are.
backend_scale() { cluster docker-scale --most-workers "$(backend_most_workers)" -- "$@"; }

# backend_stop [--delete] [NAME]: return when nothing of it is in the engine.
backend_stop() { cluster docker-stop "$@"; }
