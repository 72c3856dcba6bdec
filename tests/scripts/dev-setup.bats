#!/usr/bin/env bats
# scripts/dev-setup.sh: what installs what, with stubs for Python and uv. tests/unit/test_node_packages.py has the packages.
# shellcheck disable=SC2030,SC2031 # tests run in shells of their own
# shellcheck disable=SC2154 # project.bash sets test_python

load test_helper.bash
load project.bash

setup() {
  isolate
  make_project
  unset "${!PIP_@}" "${!UV_@}" "${!npm_@}" "${!NPM_@}"
  mkdir "${PROJECT}/tests"
  cp "${ROOT}/package-lock.json" "${ROOT}/requirements-dev.txt" "${PROJECT}"
  cp "${ROOT}/tests/node_packages.py" "${PROJECT}/tests"
  locked=(--require-hashes --requirement "${PROJECT}/requirements-dev.txt")
}

setup_tools() { "${PROJECT}/scripts/dev-setup.sh" "$@"; }

@test "dev-setup: without npm Python installs, and what it says is the error" {
  export PATH npm_config_registry=file:///none
  PATH="$(path_without npm)"
  run -69 --separate-stderr setup_tools node
  assert_equal "${stderr_lines[0]}" "dev-setup.sh: installing package-lock.json into node_modules with Python"
  assert_regex "${stderr_lines[1]}" "^dev-setup.sh: error: 'file:///none/bats/-/bats-[0-9.]+.tgz' is no address; "
  PYTHON=/none run -69 --separate-stderr setup_tools node
  assert_stderr "dev-setup.sh: error: '/none' is not on PATH; install Python 3.10 or newer, or set PYTHON"
}

@test "dev-setup: a Python that is too old, or does not run, says what it is" {
  printf '#!/bin/sh\necho "broken: a library is missing" >&2\nexit 127\n' >"${BATS_TEST_TMPDIR}/broken"
  chmod +x "${BATS_TEST_TMPDIR}/broken"
  PYTHON="${BATS_TEST_TMPDIR}/broken" run -78 --separate-stderr setup_tools python
  assert_stderr "dev-setup.sh: error: '${BATS_TEST_TMPDIR}/broken' is not a Python of 3.10 or newer, but says: \
broken: a library is missing; set PYTHON to one"
}

# Have a .venv whose pip notes its calls and what it gets on stdin, and puts a uv there that notes its own.
stub_venv() { # what pip ends with, what uv ends with
  local bin="${PROJECT}/.venv/bin"
  mkdir -p "${bin}"
  cat >"${bin}/a uv" <<END
#!/bin/sh
echo "uv \$* \${UV_DEFAULT_INDEX}" >>"${STUB_DIR}/calls"
exit $2
END
  chmod +x "${bin}/a uv"
  cat >"${bin}/python" <<END
#!/bin/sh
case "\$1 \$2" in
  "-I -") exec "${test_python}" "\$@" ;;
  "-m pip") [ "\$3" != --version ] || exit 0 ;;
esac
echo "\$*" >>"${STUB_DIR}/calls"
case "\$*" in *stdin) cat >"${STUB_DIR}/stdin"; [ $1 != 0 ] || ln -s "a uv" "${bin}/uv"; exit $1 ;; esac
END
  chmod +x "${bin}/python"
  export PATH="/usr/bin:/bin"
  PATH="$(path_without uv)"
}

pip="-m pip install --quiet --disable-pip-version-check --compile --require-hashes --requirement"

@test "dev-setup: the uv that is locked installs the rest, from where pip would" {
  stub_venv 0 0
  PIP_INDEX_URL=https://index.example/simple PIP_CONFIG_FILE=/dev/null run -0 --separate-stderr setup_tools python
  assert_calls "\
${pip} /dev/stdin
uv pip install --quiet --python ${PROJECT}/.venv/bin/python ${locked[*]} https://index.example/simple
-I ${PROJECT}/common/oci_cluster/system/envs/bytecode.py checkout"
  # Its line, its hashes, the last of which ends the entry, and nothing else.
  run -0 grep -vE '^    --hash=sha256:[0-9a-f]{64}( \\)?$' "${STUB_DIR}/stdin"
  assert_output --regexp '^uv==[0-9.]+ \\$'
  assert_equal "$(grep -vc '\\$' "${STUB_DIR}/stdin")" 1
}

@test "dev-setup: where there is no uv, or it fails, pip installs all" {
  stub_venv 1 0
  run -0 setup_tools python
  assert_calls "\
${pip} /dev/stdin
${pip} ${PROJECT}/requirements-dev.txt"
  rm "${STUB_DIR}/calls"
  stub_venv 0 2
  PIP_CONFIG_FILE=/dev/null run -0 setup_tools python
  assert_equal "$(cut -d ' ' -f 1 "${STUB_DIR}/calls" | tr '\n' ' ')" "-m uv -m "
  assert_equal "$(tail -n 1 "${STUB_DIR}/calls")" "${pip} ${PROJECT}/requirements-dev.txt"
}
