#!/usr/bin/env bats
# scripts/from-ads.sh: its exit codes, and which stream has what.

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  cat >train.yaml <<'END'
kind: distributed
apiVersion: v1.0
spec:
  cluster:
    kind: dask
    spec:
      name: first
      worker: {replicas: 2}
  runtime:
    kind: python
    spec: {entryPoint: train.py, args: [--name, a b]}
END
  touch train.py
}

from_ads() { "${PROJECT}/scripts/from-ads.sh" "$@"; }

@test "from-ads: stdout is the command alone, and the settings are a file that a launch can read (needs .venv)" {
  use_tools
  run -0 --separate-stderr from_ads train.yaml --backend stub
  assert_output "'${PROJECT}/scripts/launch.sh' dask 2 --name first"
  assert_stderr --partial "from-ads.sh: 4 fields of train.yaml are taken: dask, workers: 2"
  run -0 cat "${PROJECT}/config.env"
  assert_line "CODE_DIR='${PWD}'"
  assert_line "ARGS='[\"--name\", \"a b\"]'"
}

@test "from-ads: an unknown field is named with its line, and has a code of its own (needs .venv)" {
  use_tools
  echo '    image: x' >>train.yaml
  run -3 --separate-stderr from_ads train.yaml --dry-run
  assert_stderr --partial "not a field of ADS's: train.yaml:12: spec.runtime.image: ADS does not read it either"
  assert [ ! -e "${PROJECT}/config.env" ]
}
