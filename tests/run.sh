#!/usr/bin/env bash
# Usage: run.sh [unit|scripts|clusters ...]
#
# Run rings of tests, all three when none is named. `make test` installs their tools first.
#
#   unit      pytest on tests/unit: one process, injected clocks
#   scripts   bats on tests/*.bats: the scripts, with stubs for what they call
#   clusters  pytest on tests/clusters: real clusters of real processes
#
# A ring whose tools are missing is named and left out; with CI=true that, like a skipped test, is a failure. A ring that executes
# no test always is. The Python rings are measured; the floor in pyproject.toml holds when both have run.
#
# The last line of stdout is "N passed, N failed", over all rings. BATS names another bats.
# Exit: 0 all passed, 1 a test, a ring or the coverage fell short, 2 wrong usage.
set -Eeuo pipefail
root="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"

python="${root}/.venv/bin/python"
bats="${BATS:-node_modules/bats/bin/bats}"
scratch="" summary="" is_green=1 measured=0
total_passed=0 total_failed=0 total_skipped=0

summarize() { summary+="$(printf '%-9s %s' "$1" "$2")"$'\n'; }

not_run() { # ring, reason
  log "ring '$1' NOT RUN: $2"
  summarize "$1" "NOT RUN: $2"
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
  summarize "$1" "${text}"
  total_passed=$((total_passed + $3))
  total_failed=$((total_failed + $4))
  total_skipped=$((total_skipped + $5))
}

run_pytest() { # ring
  local ring="$1" out="${scratch}/$1" status=0 color=no failed errors
  if ! isolated -c 'import coverage, pytest' 2>/dev/null; then
    not_run "${ring}" "no pytest in .venv; run: ./scripts/dev-setup.sh python"
    return
  fi
  [[ ! -t 1 ]] || color=yes # pytest itself sees only the pipe
  # The script's path, not `-m pytest`: coverage would put the working directory on sys.path.
  isolated -m coverage run .venv/bin/pytest --color="${color}" "tests/${ring}" </dev/null 2>&1 |
    tee "${out}" || status=$?
  measured=$((measured + 1))
  failed="$(closing_count "${out}" failed)"
  errors="$(closing_count "${out}" error)" # in a fixture, or while collecting
  finish_ring "${ring}" "${status}" "$(closing_count "${out}" passed)" "$((failed + errors))" \
    "$(closing_count "${out}" skipped)"
}

run_unit() { run_pytest unit; }
run_clusters() { run_pytest clusters; }

run_scripts() {
  local out="${scratch}/scripts" status=0 ok failed skipped
  if ! command -v "${bats}" >/dev/null; then
    not_run scripts "no bats at '${bats}'; install npm, then run: ./scripts/dev-setup.sh node"
    return
  fi
  "${bats}" --formatter tap --timing tests </dev/null 2>&1 | tee "${out}" || status=$?
  ok="$(count_lines '^ok ' "${out}")"
  failed="$(count_lines '^not ok ' "${out}")"
  skipped="$(count_lines '^ok .* # skip' "${out}")"
  finish_ring scripts "${status}" "$((ok - skipped))" "${failed}" "${skipped}"
}

report_coverage() {
  local floor=()
  [[ ${measured} -eq 2 ]] || floor=(--fail-under=0) # one ring alone does not reach everything
  if isolated -m coverage combine --quiet && isolated -m coverage report ${floor[@]+"${floor[@]}"}; then
    return
  fi
  [[ ${measured} -eq 2 ]] || return 0
  is_green=0
  summarize coverage "falls short, see above"
}

main() {
  local ring
  [[ $# -gt 0 ]] || set -- unit scripts clusters
  for ring in "$@"; do
    case "${ring}" in
      -h | --help) usage && exit 0 ;;
      unit | scripts | clusters) ;;
      *) usage_error "expected unit, scripts or clusters, got '${ring}'" ;;
    esac
  done
  cd "${root}"
  scratch="$(mktemp -d)"
  trap 'rm -rf "${scratch}"' EXIT
  rm -rf .coverage-data
  for ring in "$@"; do
    printf '\n--- ring: %s\n' "${ring}"
    "run_${ring}"
  done
  [[ ${measured} -eq 0 ]] || report_coverage
  printf '\n%s' "${summary}"
  printf '%d passed, %d failed' "${total_passed}" "${total_failed}"
  [[ ${total_skipped} -eq 0 ]] || printf ', %d skipped' "${total_skipped}"
  printf '\n'
  ((is_green && total_passed + total_failed > 0))
}
main "$@"
