# shellcheck shell=bash
# Read by each bash first (BASH_ENV): holds one up where a test wants to send it a signal. GATE_BASH is `<script>/<word>`:
# begin; source, when it reads a library; cd, in the copy of it that becomes Python. A signal, or its trap, ends it.
_held() {
  [[ "${0##*/}/$1" == "${GATE_BASH:-}" ]] || return 0
  echo "$$" >>"${GATE_FILE}"
  while :; do :; done
}
source() {
  _held source
  builtin source "$@"
}
cd() {
  [[ "${BASH_SUBSHELL}" != 1 ]] || _held cd
  builtin cd "$@" || return
}
_held begin
