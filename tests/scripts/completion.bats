#!/usr/bin/env bats
# scripts/completion.sh: what it prints, and what bash makes of it without a terminal, as the 3.2 of macOS would. Real
# shells in a terminal are in tests/clusters/test_terminals.py.
# shellcheck disable=SC2016,SC2088 # single quotes hold the text of scripts

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
}

completion() { "${PROJECT}/scripts/completion.sh" "$@"; }

# Print what bash offers behind a command; the word at the cursor is the last, and replaced is what the shell replaces.
offered() { # replaced, command, word...
  bash -uc 'eval "$("$1/scripts/completion.sh")"
    COMP_WORDS=("${@:3}") COMP_CWORD=$(($# - 3))
    compopt() { printf "compopt %s\n" "$*"; }
    [[ -z "${OLD_BASH:-}" ]] || { unset -f compopt && enable -n compopt; }
    _oci_cluster_complete "$3" "$2"
    printf "%s\n" ${COMPREPLY[@]+"${COMPREPLY[@]}"}' bash "${PROJECT}" "$@"
}

@test "completion: it prints a few lines, the same from anywhere, and needs no Python" {
  run -0 --separate-stderr completion
  assert_stderr ""
  assert_equal "${#lines[@]}" 5
  local lines_of_it="${output}"
  ln -s "${PROJECT}/scripts/completion.sh" link
  PATH="$(path_without python3)" PYTHON=/none run -0 ./link
  assert_output "${lines_of_it}"
  cd "${PROJECT}/scripts"
  CDPATH=/ run -0 bash completion.sh
  assert_output "${lines_of_it}"
}

@test "completion: every script there is has it, and a second eval changes nothing" {
  printf '#!/bin/sh\n' >"${PROJECT}/scripts/mine.sh"
  run -0 bash -uc 'eval "$("$1/scripts/completion.sh")"; complete -p >once; eval "$("$1/scripts/completion.sh")"
    complete -p | diff - once; complete -p mine.sh launch.sh; echo "${#_oci_cluster_checkouts[@]}"' bash "${PROJECT}"
  assert_line --partial "_oci_cluster_complete mine.sh"
  assert_line --partial "_oci_cluster_complete launch.sh"
  assert_line 1
}

@test "completion: a path that a shell would read otherwise stays a path" {
  local odd="${BATS_TEST_TMPDIR}/\$(touch ran) \`y\`;*"
  mv "${PROJECT}" "${odd}"
  ln -s "${odd}" "${PROJECT}"
  run -0 offered da "$(printf %q "${odd}/scripts/launch.sh")" da
  assert_output "compopt +o default
dask"
  assert [ ! -e ran ]
}

@test "completion: words and options are those of the script that is typed" {
  run -0 offered da "${PROJECT}/scripts/launch.sh" da
  assert_output "compopt +o default
dask"
  run -0 offered --al "${PROJECT}/scripts/list.sh" --al
  assert_line --index 1 -- --all
  run -0 offered wo "${PROJECT}/scripts/launch.sh" --ttl wo
  assert_output "compopt +o default"
}

@test "completion: a bash of 3.2 leaves a word whole that has a =, a newer one does not" {
  run -0 offered kub "${PROJECT}/scripts/launch.sh" dask 3 --backend=kub
  assert_line kubernetes
  run -0 offered kub "${PROJECT}/scripts/launch.sh" dask 3 --backend = kub
  assert_line kubernetes
  OLD_BASH=1 run -0 offered kub "${PROJECT}/scripts/launch.sh" dask 3 --backend=kub
  assert_output kubernetes
  OLD_BASH=1 run -0 offered x "${PROJECT}/scripts/launch.sh" --code x
  assert_output ""
}

@test "completion: folders where one is wanted, files by the shell" {
  mkdir -p 'a folder' && touch 'a file'
  run -0 offered 'a f' "${PROJECT}/scripts/launch.sh" --code 'a f'
  assert_output "compopt -o filenames
a folder"
  run -0 offered 'a f' "${PROJECT}/scripts/launch.sh" --entry 'a f'
  assert_output ""
}

@test "completion: a command that is no script of the checkout gets files, and is not run" {
  mkdir scripts
  printf '#!/bin/sh\n: >ran\n' >scripts/launch.sh
  chmod +x scripts/launch.sh
  for command in scripts/launch.sh ./none/launch.sh launch.sh; do
    run -0 offered da "${command}" da
    assert_output ""
  done
  assert [ ! -e ran ]
  PATH="${PROJECT}/scripts:${PATH}" run -0 offered da launch.sh da
  assert_line dask
  HOME="${PROJECT}" run -0 offered da '~/scripts/launch.sh' da
  assert_line dask
  HOME="${PROJECT}" run -0 offered da '"${HOME}/scripts/launch.sh"' da
  assert_line dask
}

@test "completion: where Python is missing or fails, the shell completes files, in silence" {
  PYTHON=/none run -0 --separate-stderr offered da "${PROJECT}/scripts/launch.sh" da
  assert_output ""
  assert_stderr ""
}
