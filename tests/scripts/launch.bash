# Loaded by the tests of scripts/launch.sh, after project.bash: a launch, and what it asks a backend for.

launch() { "${PROJECT}/scripts/launch.sh" "$@"; }

# What the backend is asked by a launch that has checked, that has prepared, that has started two workers.
checked="place
find"
prepared="${checked}
prepare"
# shellcheck disable=SC2034 # the tests compare with it
started="${prepared}
find
start MAIN WORKER_1 WORKER_2"
