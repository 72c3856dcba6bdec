#!/usr/bin/env bats
# pytorch/start-master.sh, start-worker.sh and launch/rank.sh, run by hand with a stub for `python`.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  [[ -e "${PROJECT}/pytorch" ]] || cp -Rp "${ROOT}/pytorch" "${PROJECT}"
  local name
  for name in PYTHONUNBUFFERED OMP_NUM_THREADS $(compgen -v | grep -E '^(GLOO|NCCL|TORCH|PET|ACCELERATE|LAUNCHER|M(AX|IN))_'); do
    unset "${name}"
  done
  NODE_DIR="${BATS_TEST_TMPDIR}/node dir"
  export NODE_DIR MODE=MAIN NODE_RANK=0 NODE_NAME=MAIN WORKER_COUNT=2 PS_COUNT=0 LAUNCH_ID=0123abcd TIMEOUT=600 EPHEMERAL=1
  export NODE_ADDRESS=10.0.0.1 MAIN_ADDRESS=10.0.0.1 NODE_INTERFACE=ens3 READY_FILE="${NODE_DIR}/ready"
  export CODE_DIR="${PWD}" ENTRY_POINT="my train.py" ENTRY_ARGS_FILE="${NODE_DIR}/args" OUTPUT_DIR="${PWD}"
  export RENDEZVOUS_PORT=29400 LAUNCHER=torchrun NPROC_PER_NODE=auto LAST_CALL_TIMEOUT=10
  mkdir "${NODE_DIR}" bin
  printf '%s\0' --epochs 3 'a b' '' >"${ENTRY_ARGS_FILE}"
  # It notes how it was called, one argument a line, and with what.
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/sh' 'printf "%s\n" "$@" >"${STUB_DIR}/calls"' 'pwd -P >"${STUB_DIR}/directory"' \
    'env | grep -E "^(GLOO|NCCL|TORCH|TORCHELASTIC|PET|PYTHONUNBUFFERED)[_=]" | sort >"${STUB_DIR}/environment"' \
    'printf "%s\n" "$$" "${RANK_PID:-}" "${PYTHONPATH:-}" >"${STUB_DIR}/entry"' \
    'exit "${STUB_CODE:-0}"' >bin/python
  chmod +x bin/python
  PATH="${PWD}/bin:${PATH}"
}

be_worker() { export MODE=WORKER NODE_RANK=2 NODE_NAME=WORKER_2 NODE_ADDRESS=10.0.0.3; }

# The start script ends well, and its launcher was called so.
assert_launched() { # script, argument...
  local script="${PROJECT}/pytorch/$1"
  shift
  run -0 --separate-stderr "${script}"
  assert_output ""
  assert_stderr ""
  assert_calls "$(printf '%s\n' "${PROJECT}/pytorch/launch/launcher.py" "$@" "${PROJECT}/pytorch/launch/rank.sh")"
}

torchrun_with() { # nodes, restarts, address, is_host, last call
  printf '%s\n' torchrun "--nnodes=$1" "--max-restarts=$2" "--local-addr=$3" --rdzv-backend=c10d-ordered \
    --rdzv-endpoint=10.0.0.1:29400 --rdzv-id=0123abcd \
    "--rdzv-conf=is_host=$4,join_timeout=600,last_call_timeout=$5,keep_alive_interval=2,keep_alive_max_attempt=5" \
    "--log-dir=${NODE_DIR}/torchelastic" --no-python
}

# The start script refuses before it starts anything: this is what the log and the agent are told.
assert_refused_with() { # text, script
  run -78 --separate-stderr "${PROJECT}/pytorch/${2:-start-master.sh}"
  assert_output ""
  assert_equal "${stderr#* }" "${2:-start-master.sh}: error: $1"
  assert_equal "$(cat "${NODE_DIR}/reason")" "$1"
  assert_calls ""
}

# --- torchrun ---------------------------------------------------------------------------------------------------------

@test "pytorch main: hosts the rendezvous of all nodes" {
  assert_launched start-master.sh "$(torchrun_with 3:3 0 10.0.0.1 1 10)"
}

@test "pytorch worker: takes part in main's rendezvous" {
  be_worker
  unset READY_FILE
  assert_launched start-worker.sh "$(torchrun_with 3:3 0 10.0.0.3 0 10)"
}

@test "pytorch: elastic limits, and three restarts where nodes may be lost" {
  MIN_WORKERS=1 MAX_NODES=5 LAST_CALL_TIMEOUT=30 assert_launched start-master.sh "$(torchrun_with 2:5 3 10.0.0.1 1 30)"
  MIN_WORKERS=1 MAX_RESTARTS=0 assert_launched start-master.sh "$(torchrun_with 2:3 0 10.0.0.1 1 10)"
  MAX_RESTARTS=7 assert_launched start-master.sh "$(torchrun_with 3:3 7 10.0.0.1 1 10)"
}

@test "pytorch: what the agent has made of MIN_NODES counts, and nothing else" {
  MIN_WORKERS=0 MIN_NODES=3 assert_launched start-master.sh "$(torchrun_with 1:3 3 10.0.0.1 1 10)"
  MIN_NODES=2 assert_launched start-master.sh "$(torchrun_with 3:3 0 10.0.0.1 1 10)"
}

@test "pytorch: the start script ends with its launcher's exit code" {
  STUB_CODE=9 run -9 "${PROJECT}/pytorch/start-worker.sh"
}

@test "pytorch: the start scripts find their libraries from anywhere, and with a CDPATH" {
  mkdir -p elsewhere/pytorch elsewhere/common
  export CDPATH="${PWD}/elsewhere"
  cd "${PROJECT}"
  run -0 --separate-stderr pytorch/start-worker.sh
  assert_output ""
  run -0 --separate-stderr bash pytorch/start-master.sh
  assert_output ""
}

# --- Environment ------------------------------------------------------------------------------------------------------

@test "pytorch: gloo and NCCL get the node's interface, torch its settings" {
  run -0 "${PROJECT}/pytorch/start-master.sh"
  # shellcheck disable=SC2016 # torchrun puts the number in
  assert_equal "$(cat "${STUB_DIR}/environment")" "\
GLOO_SOCKET_IFNAME=ens3
NCCL_SOCKET_IFNAME==ens3
PYTHONUNBUFFERED=1
"'TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[rank ${rank}] '"
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7"
}

@test "pytorch: ranks that do not listen are killed before their launcher is" {
  local period
  for period in 3:2 5:3 20:14 1:0 0.5:0; do
    GRACE_PERIOD="${period%:*}" run -0 "${PROJECT}/pytorch/start-worker.sh"
    run -0 grep -x "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${period#*:}" "${STUB_DIR}/environment"
  done
}

@test "pytorch: what the user has set is kept" {
  export GLOO_SOCKET_IFNAME=eth7 NCCL_SOCKET_IFNAME=^docker TORCH_ELASTIC_SHUTDOWN_TIMEOUT=50
  export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='>'
  run -0 "${PROJECT}/pytorch/start-worker.sh"
  assert_equal "$(cat "${STUB_DIR}/environment")" "\
GLOO_SOCKET_IFNAME=eth7
NCCL_SOCKET_IFNAME=^docker
PYTHONUNBUFFERED=1
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=>
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
TORCH_ELASTIC_SHUTDOWN_TIMEOUT=50"
}

@test "pytorch: a node that knows no interface leaves the choice to gloo and NCCL" {
  unset NODE_INTERFACE
  run -0 "${PROJECT}/pytorch/start-worker.sh"
  run ! grep IFNAME "${STUB_DIR}/environment"
}

# --- Other launchers --------------------------------------------------------------------------------------------------

@test "pytorch: LAUNCHER=accelerate starts the same rendezvous through accelerate" {
  be_worker
  LAUNCHER=accelerate assert_launched start-worker.sh accelerate --num_machines 3 --machine_rank 1 --max_restarts 0 \
    --main_process_ip 10.0.0.1 --main_process_port 29400 --rdzv_backend c10d-ordered \
    --rdzv_conf is_host=0,join_timeout=600,last_call_timeout=10,keep_alive_interval=2,keep_alive_max_attempt=5 \
    --log_dir "${NODE_DIR}/torchelastic" --no_python
  run grep PET_ "${STUB_DIR}/environment"
  assert_output "\
PET_LOCAL_ADDR=10.0.0.3
PET_RDZV_ENDPOINT=10.0.0.1:29400
PET_RDZV_ID=0123abcd"
}

@test "pytorch: accelerate on a single node may choose its port, and so leaves the rendezvous as it is" {
  WORKER_COUNT=0 LAUNCHER=accelerate run -0 "${PROJECT}/pytorch/start-master.sh"
  run -0 grep -A 1 -e --main_process_port "${STUB_DIR}/calls"
  assert_line 0
  run -0 grep -x PET_RDZV_ENDPOINT=10.0.0.1:29400 "${STUB_DIR}/environment"
}

@test "pytorch: LAUNCHER=deepspeed starts DeepSpeed's launcher of one node" {
  be_worker
  LAUNCHER=deepspeed assert_launched start-worker.sh deepspeed --node_rank=2 --master_addr=10.0.0.1 --master_port=29400 \
    --no_local_rank --no_python
}

@test "pytorch: a LAUNCHER that is none is refused" {
  LAUNCHER=mpirun assert_refused_with "LAUNCHER: expected torchrun, accelerate or deepspeed, got 'mpirun'"
}

@test "pytorch: launchers with a fixed number of nodes refuse an elastic cluster" {
  local advice="has a fixed number of nodes: unset MIN_NODES and MAX_NODES, or take LAUNCHER=torchrun"
  LAUNCHER=accelerate MIN_WORKERS=1 assert_refused_with "LAUNCHER=accelerate ${advice}"
  LAUNCHER=deepspeed MAX_NODES=4 assert_refused_with "LAUNCHER=deepspeed ${advice}"
}

@test "pytorch: a launcher whose package is missing ends with 78 and the command that installs it" {
  ln -s "$(command -v "${PYTHON}")" bin/python3
  local name how
  for name in accelerate deepspeed; do
    how="--with accelerate adds it at the launch, .*python.* -m pip install accelerate does"
    [[ "${name}" == accelerate ]] || how="name your own environment by --python; there: pip install --no-build-isolation deepspeed, after torch"
    run -78 --separate-stderr python3 -I -S "${PROJECT}/pytorch/launch/launcher.py" "${name}" rank.sh
    assert_stderr --regexp "launcher.py: error: (.*python.*) has no ${name}; ${how}$"
    assert_equal "launcher.py: error: $(cat "${NODE_DIR}/reason")" "${stderr}"
  done
}

# --- What is refused --------------------------------------------------------------------------------------------------

@test "pytorch: values that are no counts are refused" {
  NPROC_PER_NODE=gpu assert_refused_with "NPROC_PER_NODE: expected a whole number of 1 or more, got 'gpu'"
  NPROC_PER_NODE=0 assert_refused_with "NPROC_PER_NODE: expected a whole number of 1 or more, got '0'"
  LAST_CALL_TIMEOUT=5s assert_refused_with "LAST_CALL_TIMEOUT: expected a whole number of 1 or more, got '5s'"
  MAX_NODES=-1 assert_refused_with "MAX_NODES: expected a whole number of 1 or more, got '-1'"
  MAX_RESTARTS=many assert_refused_with "MAX_RESTARTS: expected a whole number of 0 or more, got 'many'"
  MIN_WORKERS='x[0]' assert_refused_with "MIN_WORKERS: expected a whole number of 0 or more, got 'x[0]'"
}

@test "pytorch: a GRACE_PERIOD that is not plain seconds is refused" {
  GRACE_PERIOD=3s assert_refused_with "GRACE_PERIOD: expected seconds, got '3s'"
}

@test "pytorch: limits that exclude each other are refused" {
  MIN_WORKERS=3 assert_refused_with "MIN_NODES is 4, more than MAX_NODES, 3"
}

@test "pytorch: a cluster that stays, and parameter servers, are refused" {
  EPHEMERAL=0 assert_refused_with "PyTorch has no service that could stay: launch without --keep"
  PS_COUNT=1 assert_refused_with "PyTorch has no parameter servers: launch without --ps" start-worker.sh
}

@test "pytorch: all missing variables are named, and nothing is started" {
  unset NODE_RANK MAIN_ADDRESS LAUNCH_ID
  assert_refused_with "not set: NODE_RANK MAIN_ADDRESS LAUNCH_ID; common/README.md says what each is"
}

@test "pytorch: each variable that they need is missed" {
  assert_requires "${PROJECT}/pytorch/start-worker.sh" MODE NODE_RANK NODE_NAME NODE_ADDRESS MAIN_ADDRESS NODE_DIR CODE_DIR \
    LAUNCH_ID TIMEOUT EPHEMERAL WORKER_COUNT RENDEZVOUS_PORT LAUNCHER NPROC_PER_NODE LAST_CALL_TIMEOUT
  assert_requires "${PROJECT}/pytorch/start-worker.sh" ENTRY_POINT ENTRY_ARGS_FILE
  assert_requires "${PROJECT}/pytorch/start-master.sh" READY_FILE
}

@test "pytorch: a script that starts its processes itself is warned, on main alone" {
  printf '%s\n' 'import torch.multiprocessing as mp' 'mp.spawn(train, nprocs=2)' >"my train.py"
  run -0 --separate-stderr "${PROJECT}/pytorch/start-master.sh"
  assert_stderr --partial "'my train.py' has mp.spawn(): under torchrun this may wait for ever"
  LAUNCHER=deepspeed run -0 --separate-stderr "${PROJECT}/pytorch/start-master.sh"
  assert_stderr ""
  printf '%s\n' '# not mp.spawn(train)' 'spawn(train)' >"my train.py"
  run -0 --separate-stderr "${PROJECT}/pytorch/start-master.sh"
  assert_stderr ""
  printf '%s\n' 'mp.spawn(train, nprocs=2)' >"my train.py"
  be_worker
  run -0 --separate-stderr "${PROJECT}/pytorch/start-worker.sh"
  assert_stderr ""
}

# --- Ranks ------------------------------------------------------------------------------------------------------------

@test "pytorch rank: main's first one makes the cluster ready, then becomes the entry point" {
  export LOCAL_RANK=0 WORLD_SIZE=6 GROUP_WORLD_SIZE=3
  STUB_CODE=7 run -7 "${PROJECT}/pytorch/launch/rank.sh"
  assert_equal "$(cat "${READY_FILE}")" "\
rendezvous=10.0.0.1:29400
nodes=3
world_size=6"
  assert [ ! -e "${READY_FILE}.new" ]
  assert_calls "$(printf '%s\n' "my train.py" --epochs 3 'a b' '')"
  assert_equal "$(cat "${STUB_DIR}/directory")" "$(pwd -P)"
}

@test "pytorch rank: no other one does" {
  LOCAL_RANK=1 WORLD_SIZE=6 run -0 "${PROJECT}/pytorch/launch/rank.sh"
  be_worker
  LOCAL_RANK=0 WORLD_SIZE=6 run -0 "${PROJECT}/pytorch/launch/rank.sh"
  assert [ ! -e "${READY_FILE}" ]
}

@test "pytorch rank: its Python, and no other's, knows that it is a rank's, and has the folders that end it well" {
  local own
  PYTHONPATH=/mine LOCAL_RANK=1 WORLD_SIZE=6 run -0 "${PROJECT}/pytorch/launch/rank.sh"
  own="$(sed -n 1p "${STUB_DIR}/entry")"
  assert_equal "$(cat "${STUB_DIR}/entry")" "${own}
${own}
${PROJECT}/common/entry:${PROJECT}/pytorch/entry:/mine"
  assert [ -e "${PROJECT}/common/entry/sitecustomize.py" ]
  assert [ -e "${PROJECT}/pytorch/entry/on_import.py" ]
  PYTHONPATH=/mine run -0 "${PROJECT}/pytorch/start-master.sh"
  assert_equal "$(sed 1d "${STUB_DIR}/entry")" "
/mine"
}

@test "pytorch rank: a script that is not Python runs by itself" {
  # shellcheck disable=SC2016 # the text of a script
  printf '%s\n' '#!/bin/sh' 'echo "rank ${RANK} got $# arguments"' 'exit 3' >"run me"
  chmod +x "run me"
  ENTRY_POINT="run me" RANK=4 LOCAL_RANK=1 WORLD_SIZE=6 run -3 "${PROJECT}/pytorch/launch/rank.sh"
  assert_output "rank 4 got 4 arguments"
}

# --- Installation -----------------------------------------------------------------------------------------------------

# Make an environment that has these packages; one that does not fit cannot be imported.
make_environment() { # name and version of each...
  local site name
  "${PYTHON}" -m venv --without-pip env
  site="$(echo env/lib/python3*/site-packages)"
  while [[ $# -gt 0 ]]; do
    name="$1"
    mkdir "${site}/${name}" "${site}/${name}-$2.dist-info"
    printf 'Name: %s\nVersion: %s\n' "${name}" "$2" >"${site}/${name}-$2.dist-info/METADATA"
    echo 'raise RuntimeError("operator torchvision::nms does not exist")' >"${site}/${name}/__init__.py"
    shift 2
  done
}

@test "pytorch: post-install.sh refuses a torchvision that is compiled for another torch, and names the one that fits" {
  make_environment torch 2.13.0+cpu torchvision 0.28.0
  run -78 --separate-stderr "${PROJECT}/pytorch/post-install.sh" "${PWD}/env/bin/python" /cache pip install
  assert_output ""
  assert_stderr "error: torchvision 0.28.0 is not compiled for torch 2.13.0+cpu: operator torchvision::nms does not exist; \
take both from one index, here torchvision==0.28.0+cpu; pytorch/README.md says how"
}

@test "pytorch: post-install.sh imports nothing where nobody has added such a package" {
  make_environment torch 2.13.0
  run -0 "${PROJECT}/pytorch/post-install.sh" "${PWD}/env/bin/python" /cache pip install
  assert_output ""
}

@test "pytorch: post-install.sh takes a torchvision that fits" {
  make_environment torch 2.13.0+cpu torchvision 0.28.0+cpu
  echo >"$(echo env/lib/python3*/site-packages)/torchvision/__init__.py"
  run -0 "${PROJECT}/pytorch/post-install.sh" "${PWD}/env/bin/python" /cache pip install
  assert_output ""
}

@test "pytorch: post-install.sh without an install command is wrong usage" {
  run -2 "${PROJECT}/pytorch/post-install.sh" /env/bin/python /cache
  assert_output "usage: post-install.sh PYTHON CACHE_DIR INSTALL_COMMAND..."
}
