#!/usr/bin/env bats
# scripts/launch.sh: what it plans, whose word counts, and what a dry run shows of it.
# shellcheck disable=SC2016 # single quotes hold the text of scripts
# shellcheck disable=SC2154 # launch.bash sets what is asked of the backend

load test_helper.bash
load project.bash
load launch.bash

setup() {
  isolate
  make_project
}

# --- The plan ---------------------------------------------------------------------------------------------------------

@test "launch: the plan has one main, the workers, and the example (needs .venv)" {
  use_tools
  run -0 launch dask 3
  run -0 submitted '[found[key] for key in ("schema", "framework", "backend", "work_dir", "python")]'
  assert_output "[1, 'dask', 'stub', 'file://${PROJECT}/.clusters', '']"
  run -0 submitted '" ".join(node["node"] + "=" + node["environment"]["NODE_RANK"] for node in found["nodes"])'
  assert_output "MAIN=0 WORKER_1=1 WORKER_2=2 WORKER_3=3"
  run -0 submitted '[found["environment"][key] for key in ("WORKER_COUNT", "EPHEMERAL", "ENTRY_POINT", "ARGS")]'
  assert_output "['3', '1', 'train.py', '[]']"
  run -0 submitted 'found["environment"]["CODE_DIR"]'
  assert_output "${PROJECT}/dask/example"
}

@test "launch: each launch has an id and a name of its own" {
  run -0 planned 'found["name"]'
  first="${output}"
  assert_regex "${first}" '^dask-[0-9a-f]{4}$'
  run -0 planned 'found["name"]'
  refute_output "${first}"
}

@test "launch: arguments after -- reach the plan exactly (needs .venv)" {
  local arguments=(-- -h a 'b  c' "d'e" 'f"g' $'h\ni' '' -x --env --keep --arguments '$HOME' '*' "\\" 'ü' -1 -)
  use_tools
  run -0 launch dask 1 --name x -- "${arguments[@]}"
  run -0 submitted '*json.loads(found["environment"]["ARGS"]), sep="|"'
  expected="$(printf '%s|' "${arguments[@]}")"
  assert_output "${expected%|}"
  run -0 submitted 'found["environment"]["EPHEMERAL"]'
  assert_output 1 # --keep was the entry point's
}

@test "launch: ARGS counts where nothing stands after launch.sh's own words, not where -- does" {
  export ARGS="one 'two  three'"
  run -0 planned 'found["environment"]["ARGS"]'
  assert_output '["one", "two  three"]'
  run -0 planned 'found["environment"]["ARGS"]' --
  assert_output '[]'
}

@test "launch: a script of one's own runs in its folder, or in the one that is given" {
  mkdir -p "my code/deep"
  touch "my code/deep/it's mine.py"
  run -0 planned '[found["environment"][key] for key in ("CODE_DIR", "ENTRY_POINT")]' --entry "my code/deep/it's mine.py"
  assert_output "['${PWD}/my code/deep', \"it's mine.py\"]"
  run -0 planned '[found["environment"][key] for key in ("CODE_DIR", "ENTRY_POINT")]' --code "${PWD}/my code" --entry "my code/deep/it's mine.py"
  assert_output "['${PWD}/my code', \"deep/it's mine.py\"]"
}

@test "launch: a module runs with its root of imports" {
  mkdir -p "my code/package"
  touch "my code/package/train.py"
  cd "my code"
  run -0 planned '[found["environment"].get(key) for key in ("CODE_DIR", "ENTRY_MODULE", "ENTRY_POINT")]' --module package.train
  assert_output "['${PWD}', 'package.train', None]"
}

@test "launch: --keep has no entry point, --ttl and --name are passed on" {
  run -0 planned '[found["environment"][key] for key in ("EPHEMERAL", "ENTRY_POINT", "TTL", "CLUSTER_NAME")]' \
    --keep --ttl 2h --name my.demo_1
  assert_output "['0', '', '2h', 'my.demo_1']"
}

@test "launch: --ps adds parameter servers, whose ranks follow the workers'" {
  sed -i.bak '/^UNUSED_SETTINGS=/d' "${PROJECT}/dask/settings.env" # a framework that has some
  run -0 planned '[found["environment"]["PS_COUNT"], [node["node"] for node in found["nodes"]]]' --ps 2
  assert_output "['2', ['MAIN', 'WORKER_1', 'WORKER_2', 'PS_3', 'PS_4']]"
  PS_COUNT=1 run -0 planned 'found["environment"]["PS_COUNT"]' --ps 0
  assert_output 0
}

@test "launch: --env sets variables on every node, the last of a name wins" {
  run -0 planned '[found["environment"][key] for key in ("A", "B", "C", "D")]' --env A=1 --env 'B=x = y' --env C= --env $'D=a\nb' --env A=2
  assert_output "['2', 'x = y', '', 'a\\nb']"
}

@test "launch: --python is passed on, absolute in the plan" {
  mkdir -p environment/bin
  ln -s "$(command -v "${test_python}")" environment/bin/python
  run -0 planned 'found["python"]' --python environment
  assert_output "${PWD}/environment/bin/python"
}

# --- Who wins ---------------------------------------------------------------------------------------------------------

@test "launch: flags win over the environment, that over config.env, that over settings.env" {
  least() { run -0 planned 'found["environment"]["MIN_WORKERS"]' "$@"; }
  [[ "$(sed -n 's/^MIN_WORKERS=//p' "${PROJECT}/dask/settings.env")" != 2 ]]
  echo 'MIN_WORKERS=2' >"${PROJECT}/config.env"
  least
  assert_output 2
  MIN_WORKERS=0 least
  assert_output 0
  MIN_WORKERS=0 least --env MIN_WORKERS=1
  assert_output 1
}

@test "launch: a flag wins over every name of its setting" {
  touch mine.py other.py
  printf '%s\n' 'TTL=1m' 'ENTRY_POINT=other.py' 'CLUSTER_NAME=other' >"${PROJECT}/config.env"
  LIFE_SPAN=2m OCI__LIFE_SPAN=3m ENTRY_SCRIPT=other.py CLUSTER_NAME=another \
    run -0 planned '[found["environment"][key] for key in ("TTL", "ENTRY_POINT", "CLUSTER_NAME")]' --ttl 4m --entry mine.py --name mine
  assert_output "['4m', 'mine.py', 'mine']"
}

@test "launch: config.env is read, not run" {
  printf '%s\n' '# comment' "CLUSTER_NAME='demo' # why" 'TTL="90"' 'WORK_DIR="file:///$(touch ran)/`touch ran`"' >"${PROJECT}/config.env"
  run -0 planned '[found["name"], found["environment"]["TTL"], found["work_dir"]]'
  assert_output "['demo', '90', 'file:///\$(touch ran)/\`touch ran\`']"
  assert [ ! -e ran ]
}

@test "launch: the environment wins over config.env under every name of a setting" {
  echo 'TTL=1h' >"${PROJECT}/config.env"
  LIFE_SPAN=2h run -0 planned 'found["environment"]["TTL"]'
  assert_output 2h
}

# --- A dry run --------------------------------------------------------------------------------------------------------

# Every file of project, work folder and HOME, with size and time; what Python compiles on the way is nobody's business, nor
# is how many other tests have the same file: the second column.
tree() {
  find "${PROJECT}" "${BATS_TEST_TMPDIR}/a folder with spaces" -name __pycache__ -prune -o -exec ls -ld {} + |
    sed -E 's/^([^ ]+) +[0-9]+ /\1 /'
}

@test "launch: --dry-run asks for nothing but a check, and prints what that says" {
  run -0 --separate-stderr launch dask 3 --dry-run --detach
  assert_stderr ""
  assert_calls "${checked}
preview"
  run -0 from_json 'len(found["nodes"])' <<<"${output}"
  assert_output 4
}

@test "launch: --dry-run on the backend local prints each node's address and changes nothing" {
  use_local_check
  before="$(tree)"
  run -0 --separate-stderr launch dask 2 --dry-run --json --name demo
  assert_equal "$(tree)" "${before}"
  assert_nothing_started
  plan="$(launch dask 2 --dry-run)"
  run -0 from_json '[node["environment"]["NODE_ADDRESS"] for node in found["nodes"]]' <<<"${plan}"
  assert_output --regexp "^\['127\.0\.0\.[0-9]+', '127\.0\.0\.[0-9]+', '127\.0\.0\.[0-9]+'\]$"
  run -0 from_json '[found["work_dir"], found["environment"]["WORK_DIR"]]' <<<"${plan}"
  assert_output "['file://${PROJECT}/.clusters', 'file://${PROJECT}/.clusters']"
}

@test "launch: --dry-run hides what the name of a variable says is secret, and the cluster gets it" {
  use_local_check
  local secret=(MY_TOKEN=hush DB_PASSWORD=hush AWS_SECRET_ACCESS_KEY=hush api_key=hush PRIVATE=hush GIT_CREDENTIALS=hush)
  local options=(--env MONKEY=see --env TOKE=see) pair
  for pair in "${secret[@]}"; do
    options+=(--env "${pair}")
  done
  run -0 --separate-stderr launch dask 1 --dry-run "${options[@]}"
  refute_output --partial hush
  echo 'FILE_TOKEN=hush' >my.env
  OTHER_TOKEN=hush run -0 --separate-stderr launch dask 1 --dry-run "${options[@]}" --env OTHER_TOKEN --env-file my.env
  refute_output --partial hush
  run -0 from_json 'sorted(key for key, value in found["environment"].items() if value == "(not shown)")' <<<"${output}"
  assert_output "['AWS_SECRET_ACCESS_KEY', 'DB_PASSWORD', 'FILE_TOKEN', 'GIT_CREDENTIALS', 'MY_TOKEN', 'OTHER_TOKEN', 'PRIVATE', 'api_key']"
  use_tools
  run -0 launch dask 1 --backend stub "${options[@]}"
  run -0 submitted '[found["environment"][key] for key in ("MY_TOKEN", "api_key", "MONKEY")]'
  assert_output "['hush', 'hush', 'see']"
}
