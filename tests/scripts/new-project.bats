#!/usr/bin/env bats
# scripts/new.sh, update.sh and smoke.sh: what they do, and `make` in a project that new.sh has made.
# shellcheck disable=SC2016 # single quotes hold the text of scripts
# shellcheck disable=SC2030,SC2031 # tests run in shells of their own

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  cp "${ROOT}/LICENSE" "${ROOT}/config.env.example" "${ROOT}/.dockerignore" "${PROJECT}"
  mine="${PWD}/my own"
}

teardown() { end_jobs; }

# Make the project, without a word.
make_mine() { "${PROJECT}/scripts/new.sh" dask "${mine}" >/dev/null 2>&1; }

# Take a Python that makes an environment as `-m venv` does, with the pip that the checkout has: to install one takes seconds.
use_lent_pip() {
  [[ -e "${ROOT}/.venv/bin/python" ]] || skip "no pip to lend in .venv; run: ./scripts/dev-setup.sh python"
  printf '%s\n' '#!/bin/sh' 'case "$1 $2 $3" in "-I -m venv") ;; *) exec "'"${PYTHON}"'" "$@" ;; esac' \
    'mkdir -p "$4/bin" && ln -s "'"${PWD}"'/pip" "$4/bin/python"' >python
  printf '%s\n' '#!/bin/sh' 'exec "'"${ROOT}"'/.venv/bin/python" "$@"' >pip
  chmod +x python pip
  export PYTHON="${PWD}/python"
}

@test "new, update: neither needs .venv, and both work from anywhere, in a path with blanks" {
  run -0 --separate-stderr "${PROJECT}/scripts/new.sh" dask "${mine}" --code src --entry train.py
  assert [ ! -e "${PROJECT}/.venv" ]
  assert [ -x "${mine}/scripts/launch.sh" ]
  assert_equal "$(tail -n 2 "${mine}/config.env")" $'CODE_DIR=src\nENTRY_POINT=train.py'
  printf 'mine\n' >>"${mine}/dask/start-worker.sh"
  cp -R "${PROJECT}" newer
  printf '# newer\n' >>newer/common/lib.sh
  run -0 --separate-stderr "${mine}/scripts/update.sh" newer
  assert_output "updated   common/lib.sh"
  assert_equal "$(tail -n 1 "${mine}/dask/start-worker.sh")" mine
  run -0 --separate-stderr "${mine}/scripts/update.sh" newer
  assert_output ""
  assert_regex "${stderr}" "nothing to change"
  # git or not: the machine's own is all that was there.
  PATH="$(path_without git)" run -0 "${mine}/scripts/update.sh" newer
}

@test "update: a conflict ends with 1, and names the file" {
  make_mine
  cp -R "${PROJECT}" newer
  printf 'mine\n' >>"${mine}/dask/start-worker.sh"
  printf 'newer\n' >>newer/dask/start-worker.sh
  run -1 --separate-stderr "${mine}/scripts/update.sh" newer
  assert_output --partial "CONFLICT  dask/start-worker.sh"
  assert_regex "${stderr}" "these need you: dask/start-worker.sh"
}

@test "the wheel: --version names it, a second one and one that cannot be read are named" {
  local wheel
  make_mine
  wheel="$(printf '%s\n' "${mine}"/vendor/*)"
  run -0 --separate-stderr "${mine}/scripts/list.sh" --version
  assert_equal "oci_cluster-${output}-py3-none-any.whl" "${wheel##*/}"
  assert [ ! -e "${mine}/common/oci_cluster" ]
  cp "${wheel}" "${mine}/vendor/oci_cluster-9-0_1-py3-none-any.whl"
  run -78 --separate-stderr "${mine}/scripts/list.sh"
  assert_regex "${stderr}" "^list.sh: error: .*/vendor has oci_cluster-0.* and oci_cluster-9-0_1-py3-none-any.whl; remove"
  rm "${mine}/vendor/oci_cluster-9-0_1-py3-none-any.whl"
  printf 'version https://git-lfs.github.com/spec/v1\n' >"${wheel}"
  run -78 --separate-stderr "${mine}/scripts/list.sh"
  assert_equal "${stderr}" "list.sh: error: ${wheel} is no wheel that can be read; bring it back from git"
}

@test "the wheel: pip fetches the one that vendor/requirements.txt names, by its hash, and again when that has changed" {
  local wheel index="${BATS_TEST_TMPDIR}/index" before
  make_mine
  mkdir "${index}"
  export PIP_NO_INDEX=1 PIP_FIND_LINKS="${index}"
  wheel="$(printf '%s\n' "${mine}"/vendor/*)"
  printf 'oci-cluster==0.1.0 --hash=sha256:%s\n' "$(sha256sum "${wheel}" | cut -c 1-64)" >"${mine}/vendor/requirements.txt"
  mv "${wheel}" "${index}"
  run -0 --separate-stderr "${mine}/scripts/list.sh" --version
  assert_equal "${output}" 0.1.0
  run -0 --separate-stderr "${mine}/scripts/list.sh"
  assert_equal "${stderr}" "list.sh: fetching the wheel that ${mine}/vendor/requirements.txt names"
  assert_equal "$(cd "${mine}/vendor" && ls -A)" $'.fetched\n'"${wheel##*/}"$'\nrequirements.txt'
  run -0 --separate-stderr "${mine}/scripts/list.sh"
  assert_equal "${stderr}" ""
  use_lent_pip
  cp -R "${PROJECT}" newer
  printf '# newer\n' >>newer/scripts/templates/job.json.j2
  run -0 --separate-stderr "${mine}/scripts/update.sh" newer
  before="$(printf '%s\n' "${mine}"/vendor/*.whl)"
  assert_regex "${stderr}" "vendor/requirements.txt names another wheel: put ${before##*/} where that one is, and write its hash there"
  run -0 "${mine}/scripts/list.sh" # on this machine the newer one counts already
  assert_equal "$(printf '%s\n' "${mine}"/vendor/*.whl)" "${before}"
  printf 'oci-cluster==0.1.0 --hash=sha256:%064d\n' 0 >"${mine}/vendor/requirements.txt"
  run -69 --separate-stderr "${mine}/scripts/list.sh"
  assert_regex "${stderr}" "DO NOT MATCH THE HASHES.*list.sh: error: the wheel cannot be had; see above, and correct .*requirements.txt"
  assert_equal "$(cd "${mine}/vendor" && ls -A)" $'.fetched\n'"${before##*/}"$'\nrequirements.txt'
}

@test "the wheel: a signal ends pip, too, and leaves nothing of it" {
  make_mine
  rm "${mine}"/vendor/*.whl
  printf 'oci-cluster==0.1.0 --hash=sha256:%064d\n' 0 >"${mine}/vendor/requirements.txt"
  use_lent_pip
  printf '%s\n' '#!/bin/sh' 'echo $$ >"'"${STUB_DIR}"'/pip"' 'exec sleep 300' >pip
  begin "${mine}/scripts/list.sh"
  eventually test -s "${STUB_DIR}/pip"
  kill -TERM "${JOB}"
  finish
  assert_equal "${status}" 143
  assert_regex "${stderr}" "list.sh: stopped$"
  eventually has_ended "$(cat "${STUB_DIR}/pip")"
  assert_equal "$(ls -A "${mine}/vendor")" requirements.txt
}

@test "the wheel: a clone without it is told what to do" {
  make_mine
  rm "${mine}"/vendor/*.whl
  run -78 --separate-stderr "${mine}/scripts/list.sh"
  assert_equal "${stderr}" "list.sh: error: ${mine} has no vendor/oci_cluster-*.whl, which is all that the scripts run; bring \
it back, and see that git has it: git add -f vendor/*.whl"
}

# A launch that notes its words, prints what is given, and ends as is given.
stub_launch() { # code, text
  own "${PROJECT}/scripts/launch.sh"
  printf '#!/bin/sh\necho "$*" >>"%s/launched"\necho "%s"\nexit %s\n' "${STUB_DIR}" "$2" "$1" >"${PROJECT}/scripts/launch.sh"
}

@test "smoke: all frameworks are launched on this machine, and a cluster that fails is told with its logs" {
  stub_launch 0 'MAIN | smoke: all nodes take part: 1'
  run -0 --separate-stderr "${PROJECT}/scripts/smoke.sh"
  assert_output --regexp '^dask: clusters run here; [0-9]+ s$'
  assert_equal "$(cat "${STUB_DIR}/launched")" \
    "dask 1 --backend local --code ${PROJECT}/scripts/templates/smoke --entry with_dask.py --ttl 10m --env CUDA_VISIBLE_DEVICES="
  stub_launch 7 'MAIN | it broke'
  run -7 --separate-stderr "${PROJECT}/scripts/smoke.sh" dask
  assert_output ""
  assert_regex "${stderr}" "it broke.*error: dask: the cluster ended with 7"
  stub_launch 0 'MAIN | nothing'
  run -1 "${PROJECT}/scripts/smoke.sh" dask
}

@test "smoke: a signal ends the launch, too" {
  own "${PROJECT}/scripts/launch.sh"
  printf '#!/usr/bin/env bash\ntrap "echo ended >>%q; exit 143" TERM\necho up >%q\nwhile :; do sleep 0.05; done\n' \
    "${STUB_DIR}/launched" "${STUB_DIR}/launched" >"${PROJECT}/scripts/launch.sh"
  begin "${PROJECT}/scripts/smoke.sh" dask
  eventually test -s "${STUB_DIR}/launched"
  kill -TERM "${JOB}"
  finish
  assert_equal "${status}" 143
  assert_equal "$(cat "${STUB_DIR}/launched")" $'up\nended'
  assert_regex "${stderr}" "smoke.sh: stopped"
}

# --- make ---------------------------------------------------------------------------------------------------------------

# What images.sh was asked, in a project of the user's own with a Makefile, if one is given.
make_there() { # target...
  printf '#!/bin/sh\necho "images $*"\n' >"${mine}/scripts/images.sh"
  run -0 --separate-stderr make --no-print-directory -C "${mine}" "$@"
  assert_equal "${stderr}" ""
}

@test "make: a new project builds and pushes as the checkout does, and lists its targets" {
  mkdir -p "${mine}/app" "${mine}/my app"
  : >"${mine}/app/Dockerfile"
  : >"${mine}/my app/Dockerfile"
  make_mine
  make_there
  assert_output --regexp $'(^|\n)  build +build the images of all frameworks'
  make_there build push
  assert_output $'images build dask --to-push\nimages push dask'
  make_there build-dask pin-base
  assert_output $'images build dask\nimages pin-base'
}

@test "make: targets of the user's own stay, and ours have another name" {
  mkdir "${mine}"
  # shellcheck disable=SC2016 # the text of a Makefile
  printf '%s\n' 'X := a' 'CFLAGS:=b' 'all: test' $'\techo all $(X)' 'test build:' $'\techo mine $@' 'push-%:' $'\techo mine' >"${mine}/Makefile"
  make_mine
  make_there --silent
  assert_output $'mine test\nall a'
  make_there --silent build
  assert_output "mine build"
  make_there --silent push-dask
  assert_output "mine"
  make_there clusters-build pin-base
  assert_output $'images build dask\nimages pin-base'
  make_there push
  assert_output $'images build dask --to-push\nimages push dask'
  make_there clusters-push-dask
  assert_output $'images build dask --to-push\nimages push dask'
  make_there help
  assert_output --regexp $'(^|\n)  clusters-build +build the images of all frameworks'
  assert_output --regexp $'\n  push +push them'
}

@test "make: our line may stand first, and a project may have none of our frameworks any more" {
  mkdir "${mine}"
  printf '%s\n' 'include scripts/clusters.mk' 'all:' $'\techo all' >"${mine}/Makefile"
  make_mine
  make_there --silent
  assert_output "all"
  rm -r "${mine}/dask"
  make_there pin-base
  assert_output "images pin-base"
}

@test "make: our file may stand alone, and reads no terminal" {
  make_mine
  make_there -f scripts/clusters.mk build <<<'build: what a terminal would be read for'
  assert_output "images build dask"
}

@test "make: lock writes the locks of a project anew, with the uv that is given (needs .venv)" {
  use_tools
  make_mine
  cp -Rp "${SHARED}/venv" "${mine}/.venv" # whose Python has PyYAML
  # shellcheck disable=SC2016 # the text of a script
  printf '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\ncat >"$1"\n' >uv
  chmod +x uv
  run -0 --separate-stderr make --no-print-directory -C "${mine}" lock UV="${PWD}/uv"
  assert_equal "${stderr}" "lock: dask: locked"
  assert grep -qxF "$(sed -n 's/^ *- \(dask==\)/\1/p' "${ROOT}/dask/env.yaml")" "${mine}/dask/env-lock.txt"
}
