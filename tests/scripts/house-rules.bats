#!/usr/bin/env bats
# Rules that no linter knows. Each is seen to fail: what it forbids is fed to the same function that checks the repository.

load test_helper.bash

# --- What bash 3.2 and BSD tools do not know, and what we do not do ---------------------------------------------------
# Scripts, and what they source, run on macOS as it comes. start-*.sh run on nodes, in an image: bash 4.3.

# Call "$@" with name, pattern (grep -E), a line that must be caught, and the reason with the way out.
# An @ that opens a pattern means: where a command can stand. `timeout` is also a variable, an option, a word.
# shellcheck disable=SC2016 # patterns and samples are text
each_banned() {
  "$@" 'mapfile' '@mapfile' 'mapfile -t a <f' 'bash 4.0; while IFS= read -r line; do'
  "$@" 'readarray' '@readarray' 'readarray -t a < <(b)' 'bash 4.0; while IFS= read -r line; do'
  "$@" 'coproc' '@coproc ' 'coproc { cat; }' 'bash 4.0; Python'
  "$@" 'declare -A' '(declare|local|typeset|readonly) +-[a-zA-Z]*A' 'local -rA m=()' 'bash 4.0; Python for data with a structure'
  "$@" 'local -n' '(declare|local|typeset) +-[a-zA-Z]*n' 'local -n out=$1' 'bash 4.3; print the value'
  "$@" 'declare -g' '(declare|typeset) +-[a-zA-Z]*g' 'declare -g x=1' 'bash 4.2; a plain assignment is global'
  "$@" '${x,,}' '[$][{][a-zA-Z0-9_@*]+(\[[^]]*\])?,' 'echo "${x,,}"' 'bash 4.0; tr A-Z a-z'
  "$@" '${x^^}' '[$][{][a-zA-Z0-9_@*]+(\[[^]]*\])?\^' 'echo "${x[0]^}"' 'bash 4.0; tr a-z A-Z'
  "$@" '${x@Q}' '[$][{][a-zA-Z0-9_]+(\[[^]]*\])?@[a-zA-Z][}]' 'echo "${x@Q}"' 'bash 4.4; printf %q'
  "$@" '${a[-1]}' '[$][{][a-zA-Z0-9_]+\[ *-' 'echo "${a[-1]}"' 'bash 4.2; count from the front'
  "$@" '[[ -v x ]]' '(\[\[|&&|[|][|])( +!)? +-v ' 'if [[ ! -v x ]]; then' 'bash 4.2; [[ -z "${x+set}" ]]'
  "$@" 'wait -n' '@wait +-' 'wait -n' 'bash 4.3; wait for each process'
  "$@" '&>>' '&>>' 'make &>>log' 'bash 4.0; >>log 2>&1'
  "$@" '|&' '[|]&' 'make |& tee log' 'bash 4.0; 2>&1 |'
  "$@" ';& and ;;&' ';&' 'a) echo ;;&' 'bash 4.0; name both patterns'
  "$@" 'exec {fd}>' '[{][a-zA-Z_]+[}][<>]' 'exec {fd}>lock' 'bash 4.1; a number: exec 9>lock'
  "$@" 'printf %(...)T' 'printf.*%[0-9-]*\(' 'printf "%(%F)T" -1' 'bash 4.2; date +%F'
  "$@" 'BASHPID, EPOCHSECONDS' '[$][{]?(BASHPID|EPOCHSECONDS|EPOCHREALTIME|SRANDOM)' 'pid=$BASHPID' 'bash 4.0 and 5.0; $$, date +%s'
  "$@" 'new shopt' 'shopt .*(globstar|lastpipe|inherit_errexit|localvar)' 'shopt -s globstar' 'bash 4.0 to 5.0; write it out'
  "$@" '{1..9..2}' '[{][a-zA-Z0-9]+[.][.][a-zA-Z0-9]+[.][.]' 'echo {1..9..2}' 'bash 4.0; for ((i = 1; i < 10; i += 2))'
  "$@" 'read -t 0.5' '@read .*-t *[0-9]*[.]' 'read -r -t 0.5 x' 'bash 4.0; whole seconds'
  "$@" 'eval' '@eval ' 'eval "$(cmd)"' 'runs data as code; arrays, printf -v'
  "$@" 'ls' '@ls([ |)]|$)' 'for f in $(ls); do' 'a file name can hold anything; for f in *; do'
  "$@" 'flock' '@flock ' 'flock 9' 'macOS has none; mkdir is atomic'
  "$@" 'setsid' '@setsid ' 'setsid ./agent &' 'macOS has none; start_new_session in Python'
  "$@" 'timeout' '@timeout +[^= ]' 'if timeout 5 cmd; then' 'macOS has none; a deadline in the loop'
  "$@" 'nproc' '@nproc([ )]|$)' 'n=$(nproc)' 'macOS has none; getconf _NPROCESSORS_ONLN'
  "$@" 'tac' '@tac( |$)' 'tac log' 'macOS has none; Python'
  "$@" 'sha256sum' '@(md5|sha1|sha256|sha512)sum( |$)' 'sha256sum f' 'macOS has none; hashlib'
  "$@" '/proc' '(^|[ =<"])/proc/' 'read -r x </proc/stat' 'macOS has none; psutil'
  "$@" 'realpath' '@realpath ' 'x="$(realpath .)"' 'macOS before 13; cd -P and pwd'
  "$@" 'sed -i' '@sed +(-[nErsz]+ +)*(-[nErsz]*i|--in-place)' 'sed -E -i s/a/b/ f' 'BSD wants a suffix; sed ... f >g && mv g f'
  "$@" 'grep -P' '@grep +(-[a-zA-Z]+ +)*-[a-zA-Z]*P' 'grep -q -oP x f' 'BSD has no Perl; grep -E'
  "$@" 'date -d' '@date +(-[a-zA-Z]+ +)*(-[a-zA-Z]*d|--date)' 'date -u -d @0' 'BSD means something else by it; Python'
  "$@" 'date +%N' '@date .*%[0-9]*N' 'date +%s%N' 'BSD prints the letter N; Python'
  "$@" 'stat -c' '@stat +(-[a-zA-Z]+ +)*(-[a-zA-Z]*c|--)' 'stat -L -c %s f' 'BSD has another language; wc -c, Python'
  "$@" 'find -printf' '@find .* -printf' 'find . -printf x' 'BSD has none; -exec, globs'
  "$@" 'mktemp -p' '@mktemp +(-[a-zA-Z]+ +)*(-[a-zA-Z]*p|--)' 'x=$(mktemp -d -p /tmp)' 'BSD has none; mktemp -d'
}

# Lines that look like an offence and are none.
# shellcheck disable=SC2016 # lines are text
INNOCENT='# mapfile, wait -n and ${x,,} are banned
local timeout=5 eval_s=1
wait_for "${port}" --timeout "${timeout}" # timeout 5
command -v setsid >/dev/null
log "timeout ${timeout} s: see the ls of it"
wait "${pid}"
sed -n s/i/j/p -- "${file}"
echo "${#a[@]} ${a[$i - 1]} ${x:-1} ${x:1:-1} ${x/,/;} ${a[@]:1}"
grep -Eq -- -P f
date -u +%Y-%m-%dT%H:%M:%SZ
[[ -n "${x}" && -f y ]]; cmd 2>&1 | tee -a log; cmd &
exec 9>lock; shopt -s nullglob; find . -print
local -r limit=1; local -a names'

# Copy files without their comments to a folder, under their own paths: comments may name what is banned.
strip_comments() { # from project root, to folder; stdin: paths below that root
  local file
  while IFS= read -r file; do
    mkdir -p "$2/$(dirname "${file}")"
    sed -E -e 's/^[[:space:]]*#.*//' -e 's/[[:space:]]#[[:space:]].*//' "$1/${file}" >"$2/${file}"
  done
}

# Print FILE:LINE:TEXT and the reason for each line of the folder that has the pattern.
offences() { # folder, name, pattern, sample, reason
  local called='(^|[;&|(!{]|(^| )(then|do|else|if|elif|while|until|exec|command|env|sudo) )[[:space:]]*' pattern="$3" hits
  [[ "${pattern}" != @* ]] || pattern="${called}${pattern#@}"
  hits="$(cd "$1" && grep -rnE -- "${pattern}" .)" || return 0
  printf '%s\n' "${hits}" "    $2: $5"
}

# A Kubernetes runs on Linux alone, and what starts it may use Linux's own tools.
portable_files() {
  (cd "${ROOT}" && find scripts common tests -path tests/kubernetes -prune -o -type f \( -name '*.sh' -o -name '*.bash' \) ! -name 'start-*.sh' -print)
}

@test "house rules: what scripts and their libraries share keeps to bash 3.2 and to tools that macOS has" {
  portable_files | strip_comments "${ROOT}" stripped
  assert [ -s stripped/tests/run.sh ]
  run -0 each_banned offences stripped
  assert_output ""
}

@test "house rules: every banned construct is caught" {
  sample_is_caught() { # name, pattern, sample, reason
    mkdir -p sample
    printf 'true\n  %s\n' "$3" >sample/f.sh
    [[ "$(offences sample "$@")" == ./f.sh:2:* ]] || echo "not caught: $3"
  }
  run -0 each_banned sample_is_caught
  assert_output ""
}

@test "house rules: words, options and variables that look like a banned command are not caught" {
  mkdir raw
  printf '%s\n' "${INNOCENT}" >raw/f.sh
  echo f.sh | strip_comments raw stripped
  run -0 each_banned offences stripped
  assert_output ""
}

# --- Arrays that may be empty -----------------------------------------------------------------------------------------

# Print where an array that starts empty is expanded bare: under `set -u` bash before 4.4 calls it unbound.
bare_expansions() { # project root; stdin: paths below it
  local file name
  cd "$1" || return
  while IFS= read -r file; do
    sed -E 's/[[:space:]]#[[:space:]].*//' "${file}" | grep -oE '[A-Za-z_]+=\(\)' | sort -u | while IFS='=' read -r name _; do
      grep -nE "(^|[^+])\"[$][{]${name}\[@\][}]\"" /dev/null "${file}" || true
    done
  done
}

@test "house rules: an array that starts empty is never expanded bare" {
  run -0 bare_expansions "${ROOT}" < <(portable_files)
  assert_output ""
}

# shellcheck disable=SC2016 # samples are text
@test "house rules: the bare expansion of an empty array is caught, a guarded one is not" {
  printf '%s\n' 'a=() b=(1)' 'cmd "${a[@]}"' 'cmd ${a[@]+"${a[@]}"} "${b[@]}"' >f.sh
  run -0 bare_expansions . <<<f.sh
  assert_output 'f.sh:2:cmd "${a[@]}"'
}

# --- Layout -----------------------------------------------------------------------------------------------------------

# Print what would let a framework's folder pass for the framework's Python package.
shadows() { # project root
  local folder
  for folder in dask horovod pytorch ray tensorflow; do
    [[ -d "$1/${folder}" ]] || continue
    (cd "$1" && find "${folder}" -name __init__.py -o -name conftest.py -o -name 'test_*.py')
    (cd "$1" && find "${folder}" -mindepth 1 -maxdepth 1 -name '*.py')
  done
}

@test "house rules: no framework folder can pass for a Python package" {
  run -0 shadows "${ROOT}"
  assert_output ""
}

@test "house rules: each way to make a framework folder a Python package is caught" {
  local file
  for file in dask/__init__.py horovod/example/conftest.py pytorch/example/test_x.py ray/nodes.py tensorflow/train.py; do
    mkdir -p "$(dirname "${file}")"
    : >"${file}"
    run -0 shadows .
    assert_output --partial "${file}"
    rm "${file}"
  done
  mkdir -p dask/example
  : >dask/example/train.py
  run -0 shadows .
  assert_output ""
}

# Print what a script that people run lacks.
command_faults() { # file...
  local file
  for file in "$@"; do
    [[ -x "${file}" ]] || echo "${file}: not executable"
    [[ "$(sed -n 1p "${file}")" == '#!/usr/bin/env bash' ]] || echo "${file}: line 1 is not #!/usr/bin/env bash"
    [[ "$(sed -n 2p "${file}")" == "# Usage: $(basename "${file}")"* ]] || echo "${file}: line 2 is not '# Usage: $(basename "${file}") ...'"
    grep -qx 'set -Eeuo pipefail' "${file}" || echo "${file}: no 'set -Eeuo pipefail'"
    sed -n '/^# Examples:$/,/^#$/p;/^set /q' "${file}" | grep -qE "^#   .*$(basename "${file}")" ||
      echo "${file}: its header has no part '# Examples:' that calls it"
  done
}

# Print what a file that is sourced must not do: change the options, or be a command.
library_faults() { # file...
  local file
  for file in "$@"; do
    [[ ! -x "${file}" ]] || echo "${file}: sourced, and executable"
    ! grep -qE '^(set|shopt) [-+]' "${file}" || echo "${file}: sourced, and sets shell options"
  done
}

@test "house rules: every script is a command with a help text and strict mode" {
  run -0 command_faults "${ROOT}"/scripts/*.sh
  assert_output ""
}

@test "house rules: each fault of a script is caught" {
  printf '%s\n' '#!/bin/bash' '# Does things.' 'set -e' >bad.sh
  run -0 command_faults bad.sh
  assert_line "bad.sh: not executable"
  assert_line "bad.sh: line 1 is not #!/usr/bin/env bash"
  assert_line "bad.sh: line 2 is not '# Usage: bad.sh ...'"
  assert_line "bad.sh: no 'set -Eeuo pipefail'"
  assert_line "bad.sh: its header has no part '# Examples:' that calls it"
  printf '%s\n' '# Examples:' '#' '#   bad.sh' 'set -e' '# Examples:' '#   bad.sh' >bad.sh
  run -0 command_faults bad.sh
  assert_line "bad.sh: its header has no part '# Examples:' that calls it"
}

@test "house rules: what is sourced is no command and sets no option" {
  local file files=()
  for file in "${ROOT}"/common/*.sh "${ROOT}"/scripts/backends/*.sh; do
    case "${file}" in
      */entrypoint.sh | */install-*.sh) ;; # those in common/ that a container runs, and that are run in its build
      *'*.sh') ;;                          # a glob that found nothing
      *) files+=("${file}") ;;
    esac
  done
  assert [ "${#files[@]}" -ge 1 ]
  run -0 library_faults "${files[@]}"
  assert_output ""
}

@test "house rules: each fault of a sourced file is caught" {
  printf 'set -e\n' >bad.sh
  chmod +x bad.sh
  run -0 library_faults bad.sh
  assert_line "bad.sh: sourced, and executable"
  assert_line "bad.sh: sourced, and sets shell options"
}

# --- Dockerfiles ------------------------------------------------------------------------------------------------------

# Print the lines of a Dockerfile that are the same in every framework, its own name left out.
shared_lines() { # Dockerfile, framework
  sed -n '/^# --- same in every framework/,/^# --- end/p' "$1" | sed "s/$2/FRAMEWORK/g"
}

@test "house rules: what is the same in every Dockerfile is the same" {
  local file framework first
  first="$(shared_lines "${ROOT}/dask/Dockerfile" dask)"
  assert [ "$(grep -c '^# --- end' <<<"${first}")" -eq 3 ]
  for file in "${ROOT}"/*/Dockerfile; do
    framework="$(basename "$(dirname "${file}")")"
    assert_equal "$(shared_lines "${file}" "${framework}")" "${first}"
  done
}

@test "house rules: a Dockerfile that differs is caught" {
  sed 's/ENTRYPOINT/CMD/' "${ROOT}/dask/Dockerfile" >Dockerfile
  refute [ "$(shared_lines Dockerfile dask)" = "$(shared_lines "${ROOT}/dask/Dockerfile" dask)" ]
}

@test "house rules: every framework has a Dockerfile, which installs what its settings say that it needs" {
  local file name
  for file in "${ROOT}"/*/settings.env; do
    file="$(dirname "${file}")"
    assert [ -f "${file}/Dockerfile" ]
    for name in $(sed -n 's/^REQUIRED_PACKAGES=//p' "${file}/settings.env" | tr ',' ' '); do
      run -0 grep -E "python -I -c 'import .*${name}" "${file}/Dockerfile"
    done
  done
}

# --- Lock files -------------------------------------------------------------------------------------------------------

# Print the lines that bind a lock file to one registry, or to the machine that made it.
bound_lines() { grep -nE '://|--(extra-)?index|--find-links|"resolved"|(^|[ "])/[a-z]+/' "$@" /dev/null || true; }

@test "house rules: what frameworks share knows nothing of one that is a folder alone" {
  run -1 grep -rniwI --exclude-dir=__pycache__ ray "${ROOT}/common"
}

@test "house rules: lock files name no registry and no folder of a machine" {
  run -0 bound_lines "${ROOT}"/requirements-*.txt "${ROOT}"/common/requirements*.txt "${ROOT}"/*/*-lock.txt "${ROOT}/package-lock.json"
  assert_output ""
}

# shellcheck disable=SC1003 # the backslash is text
@test "house rules: a lock file that is bound to a registry or a machine is caught" {
  printf '%s\n' 'a==1 \' '--index-url x' '"resolved": "https://x/y"' '# via -r /home/me/r.in' '    # via -r r.in' >lock
  run -0 bound_lines lock
  assert_output "\
lock:2:--index-url x
lock:3:\"resolved\": \"https://x/y\"
lock:4:# via -r /home/me/r.in"
}

# --- A test's surroundings --------------------------------------------------------------------------------------------

@test "house rules: nothing of a user's settings reaches a test" {
  export WORK_DIR=oci://mine OCI_CLI_PROFILE=mine TIME_OUT=1 NODE_CPUS=1 CDPATH=/ PYTHONPATH=/
  isolate
  run -0 env
  refute_output --regexp $'(^|\n)(WORK_DIR|OCI_CLI_PROFILE|TIME_OUT|NODE_CPUS|CDPATH|PYTHONPATH)='
  assert_equal "${HOME}" "${BATS_TEST_TMPDIR}/a folder with spaces/home"
}

@test "house rules: path_without hides the named commands and no other" {
  PATH="$(path_without npm python3)" run -0 bash -c 'command -v npm python3 || command -v sed'
  assert_output --partial /sed
}
