# shellcheck shell=bash
# Backend `oci`: a Data Science Job for each cluster, a Job Run for each node. Sourced by the scripts; common/lib.sh is
# there already. Every backend has these functions; CONTRIBUTING.md says what each must do.

# backend_most_workers: the design's thousand nodes.
backend_most_workers() { echo 999; }

# backend_check [--json] <plan: print what would be sent, changing nothing; end where it cannot be.
backend_check() { cluster oci-check "$@"; }

# backend_prepare FRAMEWORK PYTHON: nodes bring their own environment, in their image; print the launcher's interpreter.
backend_prepare() { cluster oci-prepare; }

# backend_submit PYTHON <plan: start all nodes, or none; print the cluster's name.
backend_submit() { cluster oci-submit; }

# backend_run PYTHON <plan: the same, then show progress and logs to the end; exit with the cluster's code. It takes the
# place of this shell, so that its signals are those of the process that knows what has been started.
backend_run() { exec_cluster oci-submit --follow; }

# backend_status [--json] [NAME], backend_list [--json] [--all], backend_logs [--follow] [--node NODE] [NAME]: on stdout.
backend_status() { cluster oci-status "$@"; }
backend_list() { cluster oci-list "$@"; }
backend_logs() { cluster oci-logs "$@"; }

# backend_scale NAME WORKERS: add workers, or end some; print how many there are.
backend_scale() { cluster oci-scale --most-workers "$(backend_most_workers)" -- "$@"; }

# backend_stop [--delete] [NAME]: return when nothing of it runs.
backend_stop() { cluster oci-stop "$@"; }
