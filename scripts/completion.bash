# shellcheck shell=bash
# Sourced by an interactive bash, 3.2 or newer, out of what completion.sh prints. What may stand at the cursor, Python
# says: launcher/args/completion.py.

# What a word may be quoted with.
_oci_cluster_quotes='[\\"'\'']'
_oci_cluster_program='from oci_cluster.launcher.args.completion import main; main()'
# The checkouts whose scripts are completed; kept when this is sourced again.
[[ -n "${_oci_cluster_checkouts+set}" ]] || _oci_cluster_checkouts=()

_oci_cluster_add() { # checkout, name of a script...
  local known
  for known in ${_oci_cluster_checkouts[@]+"${_oci_cluster_checkouts[@]}"}; do
    [[ "${known}" != "$1" ]] || break
  done
  [[ "${known:-}" == "$1" ]] || _oci_cluster_checkouts+=("$1")
  shift
  # A path in quotes ends with one: bash looks for the name as it is typed.
  complete -o default -F _oci_cluster_complete "$@" "${@/%/\"}" "${@/%/\'}"
}

# Print the checkout that a command is a script of. Others may have scripts of the same name: nothing of theirs is run.
_oci_cluster_checkout_of() { # command, as typed
  local typed="${1//${_oci_cluster_quotes}/}" checkout
  case "${typed}" in
    \~/*) typed="${HOME}/${typed#??}" ;;
    \$HOME/* | \$\{HOME\}/*) typed="${HOME}/${typed#*/}" ;;
    */*) ;;
    *) typed="$(type -P "${typed}")" || return ;;
  esac
  for checkout in ${_oci_cluster_checkouts[@]+"${_oci_cluster_checkouts[@]}"}; do
    [[ ! "${typed}" -ef "${checkout}/scripts/${typed##*/}" ]] || {
      printf '%s\n' "${checkout}"
      return
    }
  done
  return 1
}

_oci_cluster_ask() { # checkout, word...
  local python="$1/.venv/bin/python"
  [[ -x "${python}" ]] || python="${PYTHON:-python3}"
  # -E and -S: no module of the user's is looked for, which is quicker, too.
  (CDPATH='' builtin cd "$1/common" && exec "${python}" -E -S -c "${_oci_cluster_program}" "${@:2}") 2>/dev/null </dev/null
}

_oci_cluster_complete() { # command, what is replaced
  local checkout name found kind word
  COMPREPLY=()
  checkout="$(_oci_cluster_checkout_of "$1")" || return 0
  name="${1##*/}"
  found="$(_oci_cluster_ask "${checkout}" "${name//${_oci_cluster_quotes}/}" "$2" "${COMP_WORDS[@]:1:COMP_CWORD}")" || return 0
  {
    IFS= read -r kind
    while IFS=$'\t' read -r word _; do # the rest is what the word means
      [[ -z "${word}" || "${word}" != "$2"* ]] || COMPREPLY+=("${word}")
    done
  } <<<"${found}"
  # A bash of macOS has no compopt: there it is files, where nothing else is known.
  type compopt >/dev/null 2>&1 || return 0
  case "${kind}" in
    folders)
      compopt -o filenames
      while IFS= read -r word; do
        COMPREPLY+=("${word}")
      done < <(compgen -d -- "$2")
      ;;
    files) ;; # readline's own, which it takes where nothing is offered here
    *) compopt +o default ;;
  esac
}
