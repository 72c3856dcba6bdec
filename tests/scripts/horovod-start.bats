#!/usr/bin/env bats
# The scripts of horovod/, run by hand with a stub for `python`.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  [[ -e "${PROJECT}/horovod" ]] || cp -Rp "${ROOT}/horovod" "${PROJECT}"
  unset PYTHONUNBUFFERED OMP_NUM_THREADS TF_NUM_INTRAOP_THREADS NCCL_SOCKET_IFNAME "${!HOROVOD_@}"
  mkdir bin
  # Notes its arguments, and what of its environment these scripts make.
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/bash' 'printf "%q " "${0##*/}" "$@" >>"${STUB_DIR}/calls"' 'echo >>"${STUB_DIR}/calls"' \
    'env | grep -E "^(HOROVOD_GLOO_IFACE|NCCL|OMP|TF_NUM|PYTHONUNBUFFERED)" | sort >"${STUB_DIR}/environment"' \
    'pwd -P >"${STUB_DIR}/directory"' 'exit "${STUB_CODE:-0}"' >bin/python
  chmod +x bin/python
  PATH="${PWD}/bin:${PATH}"
  NODE_DIR="${BATS_TEST_TMPDIR}/node dir"
  export NODE_DIR NODES_DIR="${NODE_DIR}/nodes" MODE=MAIN NODE_RANK=0 NODE_NAME=MAIN WORKER_COUNT=2 TIMEOUT=60 EPHEMERAL=1
  export NODE_ADDRESS=10.0.0.1 MAIN_ADDRESS=10.0.0.1 NODE_INTERFACE=eth7 READY_FILE="${NODE_DIR}/ready"
  export CODE_DIR="${PWD}" ENTRY_POINT="my train.py" ENTRY_ARGS_FILE="${NODE_DIR}/args"
  export HOROVOD_FRAMEWORK=pytorch SSH_PORT=12345 RENDEZVOUS_PORT=12340 SLOTS=auto BLACKLIST_COOLDOWN=5:60
  mkdir "${NODE_DIR}"
  printf '%s\0' --epochs 3 'a b' '' >"${ENTRY_ARGS_FILE}"
}
teardown() { end_jobs; }

# The launcher runs isolated: nothing in the user's folder, and no PYTHONPATH, can take the place of its modules.
launcher_line() { printf '%s ' python -I "$(printf '%q' "${PROJECT}/horovod/launcher")" "$1"; } # verb

@test "horovod: each script becomes its verb of the launcher, and ends with its code" {
  expect_verb() { # script, verb
    rm -f "${STUB_DIR}/calls"
    STUB_CODE=9 run -9 --separate-stderr "${PROJECT}/horovod/$1"
    assert_output ""
    assert_stderr ""
    assert_calls "$(launcher_line "$2")"
  }
  expect_verb node-facts.sh facts
  expect_verb start-master.sh launch
  expect_verb start-worker.sh serve
}

@test "horovod: each variable that a start script needs is missed, before anything runs" {
  local -a both=(NODE_NAME NODE_ADDRESS NODE_DIR NODES_DIR NODE_INTERFACE EPHEMERAL CODE_DIR HOROVOD_FRAMEWORK SSH_PORT SLOTS)
  assert_requires "${PROJECT}/horovod/start-worker.sh" "${both[@]}"
  assert_requires "${PROJECT}/horovod/start-worker.sh" ENTRY_POINT ENTRY_ARGS_FILE
  assert_requires "${PROJECT}/horovod/start-master.sh" "${both[@]}"
  assert_requires "${PROJECT}/horovod/start-master.sh" ENTRY_POINT ENTRY_ARGS_FILE READY_FILE TIMEOUT WORKER_COUNT \
    RENDEZVOUS_PORT BLACKLIST_COOLDOWN
}

@test "horovod: a cluster without an entry point is refused" {
  EPHEMERAL=0 run -78 "${PROJECT}/horovod/start-master.sh"
  assert_output --partial "error: a Horovod cluster has no service that could be kept"
  assert [ -s "${NODE_DIR}/reason" ]
  assert_calls ""
}

@test "horovod rank: is the entry point, with its arguments, in the code's folder, and its code" {
  STUB_CODE=7 HOROVOD_LOCAL_SIZE=1 run -7 "${PROJECT}/horovod/rank.sh"
  assert_calls "python my\\ train.py --epochs 3 a\\ b '' "
  assert_equal "$(cat "${STUB_DIR}/directory")" "$(pwd -P)"
}

@test "horovod rank: has its node's interface, and its share of the node's CPUs" {
  expect_threads() { # CPUs, ranks on the node, threads
    NODE_CPUS="$1" HOROVOD_LOCAL_SIZE="$2" run -0 "${PROJECT}/horovod/rank.sh"
    assert_equal "$(cat "${STUB_DIR}/environment")" "\
HOROVOD_GLOO_IFACE=eth7
NCCL_SOCKET_IFNAME=eth7
OMP_NUM_THREADS=$3
PYTHONUNBUFFERED=1
TF_NUM_INTRAOP_THREADS=$3"
  }
  expect_threads 8 1 8
  expect_threads 7 2 3
  expect_threads 1 4 1
}

@test "horovod rank: what the user has set stays" {
  NODE_CPUS=8 HOROVOD_LOCAL_SIZE=1 OMP_NUM_THREADS=2 TF_NUM_INTRAOP_THREADS=3 NCCL_SOCKET_IFNAME=ib0 run -0 "${PROJECT}/horovod/rank.sh"
  assert_equal "$(cat "${STUB_DIR}/environment")" "\
HOROVOD_GLOO_IFACE=eth7
NCCL_SOCKET_IFNAME=ib0
OMP_NUM_THREADS=2
PYTHONUNBUFFERED=1
TF_NUM_INTRAOP_THREADS=3"
}

@test "horovod install: without a compiler it says how to get one, before anything is installed" {
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/sh' 'touch "${STUB_DIR}/installed"' >install
  chmod +x install
  CXX=/none/g++ run -78 "${PROJECT}/horovod/post-install.sh" "$(command -v python3)" "${PWD}/cache" "${PWD}/install"
  assert_output --partial "error: no C++ compiler: '/none/g++' is not on PATH"
  assert_output --partial "apt-get install g++"
  printf '%s\n' '#!/bin/sh' 'echo "error: unrecognized option -std=c++20" >&2; exit 1' >old-g++
  chmod +x old-g++
  CXX="${PWD}/old-g++" run -78 "${PROJECT}/horovod/post-install.sh" "$(command -v python3)" "${PWD}/cache" "${PWD}/install"
  assert_output --partial "cannot compile C++20, as g++ 10 and newer can: error: unrecognized option -std=c++20"
  assert [ ! -e "${STUB_DIR}/installed" ]
  assert [ ! -e cache ]
}

@test "horovod install: a call without an install command is a wrong one" {
  run -2 "${PROJECT}/horovod/post-install.sh" python3 cache
  assert_output "usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND..."
}

@test "horovod install: the compiler is given a newer standard, no debug information, and nothing else is changed" {
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/sh' 'printf "%s|" "$@"' >compiler
  chmod +x compiler
  HVD_CXX="${PWD}/compiler" run -0 "${PROJECT}/horovod/post-install/hvd-cxx" -std=c++14 -g -O3 -Wl,-rpath,/x -DA='b c' -std=c++11 -std=gnu++17 -std=c++20 -c 'my file.cc'
  assert_output "-std=c++20|-O1|-DA=b c|-std=c++20|-std=c++20|-std=c++20|-c|my file.cc|"
}

@test "horovod: the start scripts find their libraries from anywhere, and with a CDPATH" {
  mkdir -p elsewhere/horovod elsewhere/common
  export CDPATH="${PWD}/elsewhere"
  cd "${PROJECT}"
  run -0 --separate-stderr horovod/start-worker.sh
  assert_stderr ""
  run -0 --separate-stderr bash horovod/start-master.sh
  assert_stderr ""
}
