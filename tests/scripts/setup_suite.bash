# Run by bats once, before all files and after them: what tests share, in ${SHARED}. They only read it, or have a copy of
# their own; at the end it is looked at whether they did.
#
#   project       what a user's project has of ours, compiled, with the backend `stub`
#   settings      the names of all variables that a node or a script reads
#   venv          its .venv with the packages of the launcher, where the checkout has some to lend
#   without NAME  a folder for PATH: see path_without

setup_suite() {
  local python
  # `make PYTHON=...`. Tests have a PATH of their own, in which a name, or a version manager's script, may find nothing.
  python="$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')"
  [[ -z "${PYTHON:-}" ]] || export PYTHON="${python}"
  ROOT="$(CDPATH='' cd -P "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
  export SHARED="${BATS_SUITE_TMPDIR}/shared"
  mkdir -p "${SHARED}/project"
  settings_named_in_documents >"${SHARED}/settings"
  cp -Rp "${ROOT}/common" "${ROOT}/dask" "${ROOT}/scripts" "${SHARED}/project" # -p: what Python has compiled stays valid
  mkdir "${SHARED}/project/common/oci_cluster/backends/stub"
  cp "${ROOT}/tests/scripts/stubs/backend.py" "${SHARED}/project/common/oci_cluster/backends/stub/"
  "${python}" -m compileall -q "${SHARED}/project/common/oci_cluster" || :
  sums_of_project >"${SHARED}/sums"
  make_venv_to_lend || rm -rf "${SHARED}/venv"
}

teardown_suite() {
  diff "${SHARED}/sums" <(sums_of_project) || {
    echo "a test has written to a file that all share; it needs its own first: own FILE"
    return 1
  }
}

sums_of_project() { (cd "${SHARED}/project" && find . -name __pycache__ -prune -o -type f -exec cksum {} + | sort); }

# The names in the first column of the contract's tables, and those in config.env.example.
settings_named_in_documents() {
  awk -F '|' '/^\| `/ { gsub(/[`\/]/, " ", $2); print $2 }' "${ROOT}/common/README.md" |
    tr ' ' '\n' | grep -xE '[A-Z][A-Z0-9_]+'
  [[ ! -e "${ROOT}/config.env.example" ]] ||
    sed -nE 's/^#? *([A-Z][A-Z0-9_]*)=.*/\1/p' "${ROOT}/config.env.example"
}

# The packages stay where they are; what a test installs by mistake is in its own copy.
make_venv_to_lend() {
  local tools="${ROOT}/.venv/bin/python"
  [[ -x "${tools}" ]] || return
  "${tools}" -I - "${SHARED}" <<'END'
import hashlib, pathlib, site, sys, venv
import fsspec, psutil
venv_dir, project = (pathlib.Path(sys.argv[1], name) for name in ("venv", "project"))
venv.EnvBuilder(symlinks=True).create(venv_dir)
(packages,) = (venv_dir / "lib").glob("python*/site-packages")
(packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
locked = (project / "common" / "requirements.txt").read_bytes()
(venv_dir / f".tools-{hashlib.sha256(locked).hexdigest()[:16]}").touch()
END
}
