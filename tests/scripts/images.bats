#!/usr/bin/env bats
# make build push, scripts/images.sh and what is run while an image is built, with stubs for engine, apt and Python.
# shellcheck disable=SC2016 # single quotes hold the text of scripts

load test_helper.bash

# A project with two frameworks, and an engine that notes what it is asked and fails at everything but `info`.
setup() {
  isolate
  project="${BATS_TEST_TMPDIR}/my project"
  mkdir -p "${project}/dask" "${project}/pytorch" bin
  cp "${ROOT}/Makefile" "${project}"
  ln -s "${ROOT}/common" "${project}/common"
  ln -s "${ROOT}/scripts" "${project}/scripts"
  touch "${project}"/{dask,pytorch}/{Dockerfile,start-master.sh}
  calls="${PWD}/calls"
  stub docker 'case "$1" in info) echo "{}" ;; *) echo "it does not build" >&2; exit 9 ;; esac'
  export PATH="${PWD}/bin:${PATH}"
}

# stub NAME SCRIPT: a command that notes its call, then does what SCRIPT says.
stub() {
  printf '#!/bin/sh\necho "%s $*" >>"%s"\n%s\n' "$1" "${calls}" "$2" >"bin/$1"
  chmod +x "bin/$1"
}

# The copies of scripts/ know their root by where they are: a link would lead out of the project.
use_copies() {
  rm "${project}/common" "${project}/scripts"
  cp -R "${ROOT}/common" "${project}/common"
  cp -R "${ROOT}/scripts" "${project}/scripts"
}

# --- make -------------------------------------------------------------------------------------------------------------

@test "images: make passes on all frameworks that have a Dockerfile, and whether a push follows" {
  rm "${project}/scripts"
  mkdir "${project}/scripts"
  cp "${ROOT}/scripts/clusters.mk" "${project}/scripts"
  printf '#!/bin/sh\necho "$*"\n' >"${project}/scripts/images.sh"
  chmod +x "${project}/scripts/images.sh"
  run -0 --separate-stderr make --no-print-directory -C "${project}" build
  assert_output "build dask pytorch"
  run -0 --separate-stderr make --no-print-directory -C "${project}" build push
  assert_output $'build dask pytorch --to-push\npush dask pytorch'
  run -0 --separate-stderr make --no-print-directory -C "${project}" -j4 push
  assert_output $'build dask pytorch --to-push\npush dask pytorch'
  run -0 --separate-stderr make --no-print-directory -C "${project}" push-dask
  assert_output $'build dask --to-push\npush dask'
  run -0 --separate-stderr make --no-print-directory -C "${project}" build-pytorch pin-base
  assert_output $'build pytorch\npin-base'
}

@test "images: make build push without REGISTRY stops before the engine is asked for anything" {
  use_copies
  run ! --separate-stderr make --no-print-directory -C "${project}" build push
  assert_regex "${stderr}" "images.sh: error: REGISTRY is not set"
  refute [ -e "${calls}" ]
}

@test "images: what is chosen for make reaches the build" {
  use_copies
  run ! --separate-stderr make --no-print-directory -C "${project}" build-dask TAG=v7 RUN_AS=0 BUILD_FLAGS='--network host'
  run -0 grep -E '^docker build' "${calls}"
  assert_output --partial "--tag localhost/oci-cluster/dask:v7"
  assert_output --partial "--build-arg RUN_AS=0"
  assert_output --partial "--network host ."
}

@test "images: what is chosen in config.mk reaches the build, and the command line wins" {
  use_copies
  printf 'TAG = v7\nREGISTRY = r.example/team\n' >"${project}/config.mk"
  run ! --separate-stderr make --no-print-directory -C "${project}" build-dask REGISTRY=localhost:5000/other
  run -0 grep -E '^docker build' "${calls}"
  assert_output --partial "--tag localhost:5000/other/dask:v7"
}

# --- scripts/images.sh ------------------------------------------------------------------------------------------------

@test "images: --help is the header, and no word is wrong usage" {
  run -0 --separate-stderr "${ROOT}/scripts/images.sh" --help
  assert_line --index 0 "Usage: images.sh <build|push|pin-base> [framework...] [--to-push]"
  run -2 --separate-stderr "${ROOT}/scripts/images.sh"
  assert_equal "${stderr}" \
    "images.sh: error: expected build, push or pin-base, got 'nothing' (images.sh --help says more)"
  run -2 --separate-stderr "${ROOT}/scripts/images.sh" bild
  assert_equal "${stderr}" \
    "images.sh: error: expected build, push or pin-base, got 'bild' (images.sh --help says more)"
}

@test "images: a build that fails says what the engine said, and where all of it is" {
  use_copies
  run -69 --separate-stderr "${project}/scripts/images.sh" build dask
  assert_regex "${stderr}" "for dask failed with exit code 9"
  assert_regex "${stderr}" "it does not build"
  run -0 cat "${project}/.images/dask.log"
  assert_output "it does not build"
}

# --- common/install-packages.sh ---------------------------------------------------------------------------------------

@test "install-packages: what is there is not installed, what is missing comes from apt-get" {
  stub apt-get ''
  stub present ''
  run -0 "${ROOT}/common/install-packages.sh" present
  refute [ -e "${calls}" ]
  run -0 "${ROOT}/common/install-packages.sh" present absent-a libabsent
  run -0 cat "${calls}"
  assert_line --index 0 "apt-get -qq -o Dpkg::Use-Pty=0 update"
  assert_line --index 1 "apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends absent-a libabsent"
}

@test "install-packages: a package that cannot be had is 69" {
  stub apt-get 'case "$*" in *install*) exit 100 ;; esac'
  run -69 "${ROOT}/common/install-packages.sh" absent-a
  assert_output --partial "error: absent-a cannot be installed"
}

@test "install-packages: without apt-get a command has to be in the base, of libraries nothing is known" {
  PATH="$(path_without apt-get)" run -78 "${ROOT}/common/install-packages.sh" libabsent absent-a
  assert_output --partial "no apt-get in this base image, so not installed: libabsent absent-a"
  assert_output --partial "error: choose a BASE_IMAGE of Debian or Ubuntu, or one that has the command absent-a"
  PATH="$(path_without apt-get)" run -0 "${ROOT}/common/install-packages.sh" libabsent
}

@test "install-packages: no package is wrong usage" {
  run -2 "${ROOT}/common/install-packages.sh"
  run -2 "${ROOT}/common/install-packages.sh" --help
  assert_output "usage: install-packages.sh PACKAGE..."
}

# --- common/install-env.sh --------------------------------------------------------------------------------------------

@test "install-env: its arguments are checked before anything is made" {
  run -2 "${ROOT}/common/install-env.sh"
  run -2 "${ROOT}/common/install-env.sh" env
  mkdir env
  run -2 "${ROOT}/common/install-env.sh" env env.yaml
  assert_output "install-env.sh: error: env is there already"
}

@test "install-env: a base with an old Python, or with none and no conda, is named" {
  stub python3 '[ "$1" != --version ] || echo "Python 3.8.1"; exit 1'
  INSTALL_CACHE="${PWD}/cache" run -78 "${ROOT}/common/install-env.sh" env env.yaml
  assert_output "install-env.sh: error: this base image has Python 3.8.1, 3.10 or newer is needed; choose another BASE_IMAGE"
  PATH="$(path_without python3 conda mamba micromamba)" INSTALL_CACHE="${PWD}/cache" \
    run -78 "${ROOT}/common/install-env.sh" env env.yaml
  assert_output --partial "has neither python3 nor conda, mamba, micromamba"
}

@test "install-env: where there is no python3 conda makes one for the installer, which is gone afterwards" {
  stub micromamba 'while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/bin" && cp "${0%/*}/tool" "$2/bin/python"'
  stub tool 'exit "${TOOL_FAILS:-0}"'
  PATH="${PWD}/bin:$(path_without python3 conda mamba)" TMPDIR="${PWD}" INSTALL_CACHE="${PWD}/cache" \
    run -0 "${ROOT}/common/install-env.sh" env env.yaml
  run -0 cat "${calls}"
  assert_line --index 0 --regexp "^micromamba create .* --channel conda-forge python pip$"
  assert_line --index 1 --regexp "^tool -m pip install .* --require-hashes --requirement .*/requirements-install.txt$"
  assert_line --index 2 "tool -m oci_cluster.images.install env env.yaml"
  run -0 find . -name 'tmp.*'
  assert_output ""
}

@test "install-env: the program's code is the script's own" {
  stub python3 'case "$1 $2" in "-m venv") mkdir -p "$3/bin" && cp "${0%/*}/tool" "$3/bin/python" ;; esac'
  stub tool 'case "$*" in *images.install*) exit 78 ;; esac'
  TMPDIR="${PWD}" INSTALL_CACHE="${PWD}/cache" run -78 "${ROOT}/common/install-env.sh" env env.yaml
  stub tool 'exit 1'
  TMPDIR="${PWD}" INSTALL_CACHE="${PWD}/cache" run -69 "${ROOT}/common/install-env.sh" env env.yaml
  assert_output --partial "pip cannot install what the installer needs"
}
