#!/usr/bin/env bash
# Usage: run.sh [--quick|--measure|--loaded] [unit|scripts|core|slow|clusters|kubernetes|example|nightly ...]
#
# Run rings of tests; without an argument, the first three. `make test` installs the tools first.
#
#   unit        pytest on tests/unit without what is marked `slow`: injected clocks, no clusters
#   scripts     bats on tests/scripts/*.bats: the scripts, with stubs for the programs that they call
#   core        pytest on those tests of clusters that `CORE` in tests/rings.py names, but for what is marked `alone`
#   slow        what the unit ring leaves out
#   clusters    pytest on tests/clusters without the core: real clusters of real processes
#   kubernetes  pytest on tests/kubernetes: a real Kubernetes, which Go builds first; minutes once
#   example     one of core alone: Dask's example
#   nightly     scripts of others as they are, and tests of clusters and kubernetes that tests/nightly.txt names or that
#               are marked `nightly`; they need gigabytes and hours
#
# Tests run side by side: those that compute on every CPU, those of clusters, which mostly wait, five at a time, and the
# files of kubernetes four at a time. TEST_JOBS names another number for all. Tests marked `quiet` come after the
# others, and last those marked `alone`.
#
# With --measure the coverage of the Python rings is measured; that of unit and slow must reach the floor in
# pyproject.toml. It takes three times the CPU of clusters: every agent and every launcher is traced.
#
# With --quick, scripts tagged `slow` are left out, too: for the edit loop. With --loaded, three processes compute beside
# the tests, as on a machine that others use.
#
# If the tools of a ring are missing, the run names the ring and leaves it out. With CI=true, a ring that was left out is
# a failure, and so is a skipped test. A ring that executes no test is always a failure.
#
# With CI=true, on Linux, a ring also fails that takes more CPU seconds than tests/budget.txt gives it.
#
# The last line of stdout is "N passed, N failed", over all rings, which rings were not run, and what was left out. BATS
# names another bats.
# Exit: 0 all passed, 1 a test or a ring failed or the coverage is below the floor, 2 wrong usage.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

python="${root}/.venv/bin/python"
bats="${BATS:-node_modules/bats/bin/bats}"
jobs="${TEST_JOBS:-}"
scratch="" summary="" rings_not_run="" is_green=1 measured="" how=""
total_passed=0 total_failed=0 total_skipped=0
beside=() # what runs beside the tests, each in a process group of its own

summarize() { summary+="$(printf '%-10s %s' "$1" "$2")"$'\n'; }

not_run() { # ring, reason
  log "ring '$1' NOT RUN: $2"
  summarize "$1" "NOT RUN: $2"
  rings_not_run+=" $1"
  [[ "${CI:-}" != true ]] || is_green=0
}

# -I: neither the working directory nor PYTHONPATH may let the folder dask/ pass for the package dask.
isolated() { "${python}" -I -u "$@"; }

# Print the number that stands before a word in pytest's closing line, 0 when the word is not there.
closing_count() { # log, word
  local line
  # No such line: it crashed.
  line="$(sed $'s/\033\\[[0-9;]*m//g' "$1" | grep -E '^=+ .* in [0-9.]+s' | tail -n 1)" || true
  if [[ "${line}" =~ \ ([0-9]+)\ $2 ]]; then
    printf '%s\n' "${BASH_REMATCH[1]}"
  else
    printf '0\n'
  fi
}

count_lines() { grep -cE "$1" "$2" || true; } # grep prints the 0 itself

# Print the CPU seconds of this machine since it started, without what runs at a low priority; nothing without psutil. The
# processes of clusters are no children of pytest: its own count has a fifth of them.
cpu_seconds() { isolated -c 'import psutil; times = psutil.cpu_times(); print(int(times.user + times.system))' 2>/dev/null || :; }

# Print the CPU seconds that a ring may take; nothing where no line of the table is about it.
budget_of() { awk -v ring="$1" '$1 == ring {print $2}' tests/budget.txt; }

# Add to the text of a ring how long it took; it fails where that was more than it may take.
add_cost() { # ring
  local used limit
  text+=" in $((SECONDS - began)) s"
  [[ -n "${cpu_began}" ]] || return 0
  used="$(($(cpu_seconds) - cpu_began))"
  text+=", CPU ${used} s"
  limit="$(budget_of "$1")"
  [[ "${CI:-}" == true && -n "${limit}" && ${used} -gt ${limit} ]] || return 0
  text+=": more than the ${limit} s of tests/budget.txt"
  is_green=0
}

finish_ring() { # ring, exit status of its runner, passed, failed, skipped
  local text="$3 passed, $4 failed"
  if [[ $5 -gt 0 ]]; then
    text+=", $5 skipped"
    [[ "${CI:-}" != true ]] || is_green=0 # a test that CI does not run is not known to pass anywhere
  fi
  if (($3 + $4 == 0)); then
    text+=": executed no test"
    is_green=0
  fi
  if [[ $2 -ne 0 ]]; then
    is_green=0
    [[ $4 -gt 0 ]] || text+=": its runner ended with $2"
  fi
  add_cost "$1"
  summarize "$1" "${text}"
  total_passed=$((total_passed + $3))
  total_failed=$((total_failed + $4))
  total_skipped=$((total_skipped + $5))
}

# Run pytest, measured where that is asked for; add what it did to passed, failed, skipped, status and not_applicable.
count_pytest() { # argument...
  local out="${scratch}/pytest" color=no code=0 measure=()
  # pytest itself sees only the pipe; see https://no-color.org.
  [[ ! -t 1 || -n "${NO_COLOR:-}" || "${TERM:-}" == dumb ]] || color=yes
  # The script's path, not `-m pytest`: coverage would put the working directory on sys.path.
  [[ -z "${is_measured}" ]] || measure=(-m coverage run)
  isolated ${measure[@]+"${measure[@]}"} .venv/bin/pytest --color="${color}" "$@" </dev/null 2>&1 | tee "${out}" || code=$?
  # 5: none of this part is in this ring.
  [[ ${code} -eq 0 || ${code} -eq 5 ]] || status="${code}"
  passed=$((passed + $(closing_count "${out}" passed)))
  # Errors are in a fixture, or while collecting.
  failed=$((failed + $(closing_count "${out}" failed) + $(closing_count "${out}" error)))
  skipped=$((skipped + $(closing_count "${out}" skipped)))
  # What holds elsewhere and cannot be asked here: no failure, and nothing that may go unseen.
  not_applicable+="$(sed $'s/\033\\[[0-9;]*m//g' "${out}" | grep '^NOT APPLICABLE: ' || true)"
}

run_pytest() { # ring, function that calls count_pytest
  local passed=0 failed=0 skipped=0 status=0 not_applicable="" is_measured=""
  if ! isolated -c 'import coverage, pytest, xdist' 2>/dev/null; then
    not_run "$1" "no pytest, or not all that it needs, in .venv; run: ./scripts/dev-setup.sh python"
    return
  fi
  [[ "${how}" != --measure ]] || is_measured=1
  "$2"
  [[ -z "${is_measured}" ]] || measured=1
  finish_ring "$1" "${status}" "${passed}" "${failed}" "${skipped}"
  [[ -z "${not_applicable}" ]] || summary+="${not_applicable}"$'\n'
}

unit_tests() { count_pytest --numprocesses "${jobs:-logical}" --dist worksteal -m 'not slow' tests/unit; }
slow_tests() { count_pytest --numprocesses "${jobs:-logical}" --dist worksteal -m slow tests/unit; }

beside_each_other() { count_pytest --numprocesses "${jobs:-5}" --no-loadscope-reorder -m "$1" tests/clusters; } # marks

core_tests() {
  wait_for_environments
  beside_each_other 'core and not alone' # none of them is quiet
}

cluster_tests() {
  local ours='not core and not nightly'
  beside_each_other "${ours} and not quiet and not alone"
  # Each worker takes 3 s of CPU to read all tests.
  count_pytest --numprocesses "${jobs:-2}" -m "${ours} and quiet" tests/clusters
  count_pytest -m 'alone and not nightly' tests/clusters
}

# Four at a time: what they wait for computes on the same CPUs.
kubernetes_tests() {
  count_pytest --numprocesses "${jobs:-4}" --dist loadfile -m 'not alone and not nightly' tests/kubernetes
  count_pytest -m 'alone and not nightly' tests/kubernetes
}

example_test() {
  count_pytest tests/clusters/test_dask.py::test_example_shows_each_workers_share_and_its_result
}

# One after the other: each imports its framework on two nodes at least.
nightly_tests() {
  count_pytest tests/samples
  count_pytest -m nightly tests/clusters
  count_pytest -m nightly tests/kubernetes
}

run_unit() { run_pytest unit unit_tests; }
run_core() { run_pytest core core_tests; }
run_slow() { run_pytest slow slow_tests; }
run_clusters() { run_pytest clusters cluster_tests; }
run_kubernetes() {
  local reason
  # Before minutes of building: what else is missing, such as root.
  if ! reason="$(isolated -c 'import sys; sys.path[:0] = "tests", "tests/kubernetes"
from kube.cluster import why_not
print(why_not())' 2>&1)" || [[ -n "${reason}" ]]; then
    not_run kubernetes "${reason##*$'\n'}"
  elif ! tests/kubernetes/build-tools.sh >/dev/null; then
    not_run kubernetes "its programs are not built, see above; they need Go: ./scripts/dev-setup.sh go"
  else
    run_pytest kubernetes kubernetes_tests
  fi
}
run_example() { run_pytest example example_test; }
run_nightly() { run_pytest nightly nightly_tests; }

bats_files() { "${bats}" --formatter tap --timing ${options[@]+"${options[@]}"} "$@" </dev/null; } # file...

other_bats_files() { bats_files "$@" >"${scratch}/others" 2>&1; }

run_scripts() {
  local out="${scratch}/scripts" status=0 ok failed skipped options=() count="${jobs:-8}" others files=(tests/scripts/*.bats)
  local half=$((${#files[@]} / 2))
  if ! command -v "${bats}" >/dev/null; then
    not_run scripts "no bats at '${bats}'; run: ./scripts/dev-setup.sh node"
    return
  fi
  # Tests of one file side by side, for which bats needs flock, as Linux has it; for files it would need GNU parallel.
  # Who waits for a place looks every second: with as many places as CPUs, most of the time nobody computes.
  if [[ ${count} -gt 1 ]] && command -v flock >/dev/null; then
    options=(--jobs "${count}" --no-parallelize-across-files)
  fi
  [[ "${how}" != --quick ]] || options+=(--filter-tags '!slow')
  # Two files at a time: each waits at its end for its last test.
  if [[ ${count} -gt 1 ]]; then
    start_beside other_bats_files "${files[@]:half}"
    others="$!"
    bats_files "${files[@]:0:half}" 2>&1 | tee "${out}" || status=$?
    wait "${others}" || status=$?
    tee -a "${out}" <"${scratch}/others"
  else
    bats_files "${files[@]}" 2>&1 | tee "${out}" || status=$?
  fi
  ok="$(count_lines '^ok ' "${out}")"
  failed="$(count_lines '^not ok ' "${out}")"
  skipped="$(count_lines '^ok .* # skip' "${out}")"
  finish_ring scripts "${status}" "$((ok - skipped))" "${failed}" "${skipped}"
}

report_coverage() {
  local floor=(--fail-under=0) # the other rings alone do not reach everything
  [[ "${rings}" != *" unit "*" slow "* ]] || floor=()
  if isolated -m coverage combine --quiet && isolated -m coverage report ${floor[@]+"${floor[@]}"}; then
    return
  fi
  [[ ${#floor[@]} -eq 0 ]] || return 0
  is_green=0
  summarize coverage "falls short, see above"
}

# Start something beside the tests, in a process group of its own, which ends with this script.
start_beside() { # command...
  set -m
  "$@" >>"${scratch}/beside" 2>&1 </dev/null &
  set +m
  beside+=("$!")
}

end_beside() {
  local process
  for process in ${beside[@]+"${beside[@]}"}; do
    # Not KILL: an installer has a session of its own, which what started it ends.
    kill -TERM -- "-${process}" 2>/dev/null || : # it has ended
  done
}

# While other rings run: the environments that the core needs and that are not there. What fails is done again, and
# told, by the first launch.
make_environments() {
  local framework build="${TORCH:-}" tag='import sys; print("cp%d%d" % sys.version_info[:2])'
  # Without a wheel at hand, PyTorch's own index has the build that brings no gigabytes of CUDA.
  compgen -G "${PIP_FIND_LINKS:-/nowhere}/torch-*+cpu-$("${python}" -c "${tag}")-*.whl" >/dev/null || build=cpu
  export PATH="${root}/.venv/bin:${PATH}" PYTHONPATH=common
  for framework in dask pytorch; do
    [[ -d ".venv/envs/${framework}" ]] || TORCH="${build}" "${python}" -m oci_cluster prepare "${framework}" || :
  done
}

wait_for_environments() {
  [[ -z "${environments}" ]] || wait "${environments}" || :
  environments=""
}

# Three processes that compute, as a neighbour's would.
load_the_machine() {
  local number
  for number in 1 2 3; do
    (while :; do :; done) &
  done
  log "${number} processes compute beside the tests"
  wait
}

main() {
  local ring rings left_out="" environments="" began cpu_began
  # In the background, and under nohup: see there.
  if [[ "$(trap -p INT HUP)" == *"''"* && -x "${python}" ]]; then
    exec "${python}" -I "${root}/tests/with_signals.py" "$0" "$@"
  fi
  case "${1:-}" in
    --quick | --measure | --loaded)
      how="$1"
      shift
      ;;
    *) ;;
  esac
  if [[ $# -eq 0 ]]; then
    set -- unit scripts core
    left_out="; left out, as they need root, Go, a container engine, a compiler or an hour: \`make test-all\`, \`make test-nightly\`"
  fi
  rings=" $* "
  for ring in "$@"; do
    case "${ring}" in
      -h | --help) usage && exit 0 ;;
      unit | scripts | core | slow | clusters | kubernetes | example | nightly) ;;
      *) usage_error "expected unit, scripts, core, slow, clusters, kubernetes, example or nightly, got '${ring}'" ;;
    esac
  done
  [[ "${jobs:-1}" =~ ^[1-9][0-9]*$ ]] || usage_error "TEST_JOBS: expected a whole number from 1, got '${jobs}'"
  cd "${root}"
  scratch="$(mktemp -d)"
  trap 'end_beside; rm -rf "${scratch}"' EXIT
  rm -rf .coverage-data
  if [[ "${rings}" == *" core "* && -x "${python}" ]]; then
    start_beside make_environments
    environments="$!"
  fi
  [[ "${how}" != --loaded ]] || start_beside load_the_machine
  for ring in "$@"; do
    printf '\n--- ring: %s\n' "${ring}"
    began="${SECONDS}" cpu_began="$(cpu_seconds)"
    "run_${ring}"
  done
  [[ -z "${measured}" ]] || report_coverage
  printf '\n%s' "${summary}"
  printf '%d passed, %d failed' "${total_passed}" "${total_failed}"
  [[ ${total_skipped} -eq 0 ]] || printf ', %d skipped' "${total_skipped}"
  printf ' in %d s' "${SECONDS}"
  [[ -z "${rings_not_run}" ]] || printf '; NOT RUN:%s' "${rings_not_run}"
  printf '%s\n' "${left_out}"
  ((is_green && total_passed + total_failed > 0))
}
main "$@"
