# Loaded by the tests of scripts/launch.sh, after project.bash: a launch, what it would do, and what it asks a backend for.

launch() { "${PROJECT}/scripts/launch.sh" "$@"; }

# What the backend was given to start: print what a Python expression makes of `found`, the plan.
submitted() { from_json "$1" <"${STUB_DIR}/plan.json"; }

# What a launch would do: print what a Python expression makes of `found`, its plan.
planned() { # expression, argument of launch.sh...
  local expression="$1"
  shift
  launch dask 2 --dry-run "$@" >"${BATS_TEST_TMPDIR}/planned" || return
  from_json "${expression}" <"${BATS_TEST_TMPDIR}/planned"
}

# Take the backend `local`, with ports that nobody has: whatever else runs on this machine is not to matter. It checks and
# prepares; a launch that it does not refuse ends with 99, and starts nothing.
use_local() {
  export BACKEND=local SCHEDULER_PORT DASHBOARD_PORT
  read -r SCHEDULER_PORT DASHBOARD_PORT < <("${PYTHON}" -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(listener.getsockname()[1] for listener in held))')
  own "${PROJECT}/common/oci_cluster/backends/local/backend.py"
  cat >>"${PROJECT}/common/oci_cluster/backends/local/backend.py" <<'END'


def _refuse(self, plan, *_):
    from oci_cluster.errors import ClusterError

    raise ClusterError("was to prepare or to start a cluster", exit_code=99)


LocalBackend.start = _refuse
END
}

# The same, which prepares nothing either.
use_local_check() {
  use_local
  echo 'LocalBackend.prepare = _refuse' >>"${PROJECT}/common/oci_cluster/backends/local/backend.py"
}

# What the backend is asked by a launch that has checked, that has prepared, that has started two workers.
checked="place
find"
prepared="${checked}
prepare"
# shellcheck disable=SC2034 # the tests compare with it
started="${prepared}
find
start MAIN WORKER_1 WORKER_2"
