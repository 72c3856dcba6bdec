# Sourced by an interactive zsh, out of what completion.sh prints. What may stand at the cursor, Python says:
# launcher/args/completion.py.

_oci_cluster_program='from oci_cluster.launcher.args.completion import main; main()'
# The checkouts whose scripts are completed; kept when this is sourced again.
typeset -gaU _oci_cluster_checkouts

_oci_cluster_add() { # checkout, name of a script...
  _oci_cluster_checkouts+=("$1")
  # Without a dump file: nothing is left in the home folder of one who has not asked for completion.
  ((${+functions[compdef]})) || { autoload -Uz compinit && compinit -i -D; }
  shift
  # A path in quotes ends with one: zsh looks for the name as it is typed.
  local double='"' single="'"
  compdef _oci_cluster_complete "$@" "${@/%/$double}" "${@/%/$single}"
}

# Print the checkout that a command is a script of. Others may have scripts of the same name: nothing of theirs is run.
_oci_cluster_checkout_of() { # command, as typed
  emulate -L zsh
  local typed="$1" checkout
  case "$typed" in
    \~/*) typed="$HOME/${typed#??}" ;;
    \$HOME/* | \$\{HOME\}/*) typed="$HOME/${typed#*/}" ;;
  esac
  typed="${(Q)typed}"
  [[ "$typed" == */* ]] || typed="$(whence -p -- "$typed")" || return
  for checkout in "${_oci_cluster_checkouts[@]}"; do
    [[ "$typed" -ef "$checkout/scripts/${typed:t}" ]] || continue
    print -r -- "$checkout"
    return
  done
  return 1
}

_oci_cluster_ask() { # checkout, word...
  emulate -L zsh
  local python="$1/.venv/bin/python"
  [[ -x "$python" ]] || python="${PYTHON:-python3}"
  # -E and -S: no module of the user's is looked for, which is quicker, too.
  (builtin cd -q "$1/common" && exec "$python" -E -S -c "$_oci_cluster_program" "${@:2}") 2>/dev/null </dev/null
}

_oci_cluster_complete() { # among the options that _main_complete has set
  local checkout name answer line tab=$'\t' current="${(Q)PREFIX}"
  local -a before found shown
  checkout="$(_oci_cluster_checkout_of "${words[1]}")" || {
    _default
    return
  }
  # What is behind the = of an option is completed alone.
  ! compset -P 1 '--*=' || current="${current#*=}"
  name="${(Q)words[1]}"
  before=("${(@Q)words[2,CURRENT-1]}")
  answer="$(_oci_cluster_ask "$checkout" "${name:t}" "$current" "${before[@]}" "${(Q)IPREFIX}$current")" || {
    _default # no Python here
    return
  }
  found=("${(@f)answer}")
  for line in "${found[@]:1}"; do
    # Behind a colon _describe has what a word means.
    line="${line//:/\\:}"
    line="${line/$tab/:}"
    shown+=("${line%:}")
  done
  ((${#shown} == 0)) || _describe -t words word shown
  case "${found[1]}" in
    files) _files ;;
    folders) _files -/ ;;
  esac
}
