#!/usr/bin/env bats
# scripts/launch.sh on the backend `local`, which is asked, and refused before it starts anything.
# bats file_tags=slow

load test_helper.bash
load project.bash
load launch.bash

setup() {
  isolate
  make_project
}
teardown() { end_jobs; }

# --- The user's own environment, on the backend local -----------------------------------------------------------------

# A Python that has no packages: it is only ever asked which of some it lacks.
python_lacking() { # file, JSON list
  cat >"$1" <<END
#!/bin/sh
[ "\$1 \$2" = "-I -c" ] || exit 99
case "\$3" in "print('a Python')") echo a Python ;; *) echo '$2' ;; esac
END
  chmod +x "$1"
}

@test "launch: a --python that lacks packages is told which, and how to install them" {
  use_local
  python_lacking "${PWD}/python" '["dask", "distributed"]'
  assert_refused 78 "launch.sh: error: --python ${PWD}/python lacks dask, distributed; install" launch dask 3 --python "${PWD}/python"
  assert_stderr --partial ": ${PWD}/python -m pip install dask distributed"
}

@test "launch: a --python that does not run is named" {
  use_local
  printf '#!/bin/sh\necho broken >&2\nexit 1\n' >python
  chmod +x python
  assert_refused 2 "launch.sh: error: --python ${PWD}/python " launch dask 3 --python "${PWD}/python"
}

@test "launch: --python takes an environment's folder" {
  use_local
  mkdir -p environment/bin
  python_lacking environment/bin/python '["dask"]'
  assert_refused 78 "launch.sh: error: --python " launch dask 3 --python "${PWD}/environment"
  assert_stderr --partial "environment/bin/python lacks dask; install"
}

@test "launch: a --python that is given from here is found by nodes, which run elsewhere (needs .venv)" {
  use_tools
  mkdir -p environment/bin
  python_lacking environment/bin/python '[]'
  run -0 --separate-stderr launch dask 1 --detach --python environment/bin/python
  run -0 grep '^prepare ' "${STUB_DIR}/calls"
  assert_output "prepare ${PWD}/environment/bin/python"
  run -0 submitted 'found["python"]'
  assert_output "${PWD}/environment/bin/python"
}

# --- What the backend local refuses -----------------------------------------------------------------------------------

@test "launch: a second cluster of a name is refused while the first runs" {
  use_local_check
  add_running_cluster demo
  assert_error 2 "launch.sh: error: a cluster named 'demo' is running; choose another --name, or end it: scripts/stop.sh demo" \
    launch dask 1 --name demo
  exec 8>&- # ended
  run -0 launch dask 1 --name demo --dry-run
}

@test "launch: a port that is none is named" {
  use_local_check
  assert_refused 78 "launch.sh: error: SCHEDULER_PORT: '99999' " \
    launch dask 1 --env SCHEDULER_PORT=99999
  DASHBOARD_PORT=http assert_refused 78 "launch.sh: error: DASHBOARD_PORT: 'http' is not" launch dask 1
}

@test "launch: a work dir in memory is refused" {
  use_local_check
  WORK_DIR=memory://here assert_refused 78 "launch.sh: error: nodes cannot share WORK_DIR memory://here" launch dask 1
}

@test "launch: a work dir that is no URL is refused" {
  use_local_check
  WORK_DIR=/data/clusters assert_refused 78 "launch.sh: error: " launch dask 1
  assert_stderr --partial "'/data/clusters' "
}

@test "launch: a .clusters that cannot be made is named, and nothing is started" {
  use_local_check
  touch "${PROJECT}/.clusters"
  assert_error 77 "launch.sh: error: ${PROJECT}/.clusters cannot be written: " launch dask 1
  assert [ ! -s "${PROJECT}/.clusters" ]
}
