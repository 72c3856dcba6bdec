#!/usr/bin/env bash
# Usage: build-tools.sh [--go]
#
# Build the Kubernetes of tests, and print the directory that has it. With --go, print the Go that would build it.
#
# go.mod names what is built, and go.sum pins it. What was built is kept in ${XDG_CACHE_HOME:-~/.cache}/oci-cluster/kubernetes,
# in a directory that is named by all that it is made of. Builders wait for each other, and what is there is whole. What
# was not used for 30 days is removed: one such directory has 700 MB.
#
# It takes the first Go that is new enough: that of GO, of PATH, or what `scripts/dev-setup.sh go` has installed. Seen with
# Go 1.26.8 on 2 quiet cores: 8 minutes, 15 of CPU; 2 GB of memory, 2 GB of modules, 3 GB of Go's build cache.
# Exit: 0 it is there, 2 wrong usage, 69 there is no Go that can build it, or it was not built.
set -Eeuo pipefail
here="$(CDPATH='' cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
root="$(CDPATH='' cd -P "${here}/../.." && pwd)"
# shellcheck source=common/lib.sh
source "${root}/common/lib.sh"
go="" built_with=""
kept="${XDG_CACHE_HOME:-${HOME}/.cache}/oci-cluster/kubernetes"

version_of() { # module
  local version
  version="$(awk -v module="$1" '$1 == module { print substr($2, 2) }' go.mod)"
  [[ -n "${version}" ]] || die 69 "go.mod names no version of $1"
  printf '%s\n' "${version}"
}

# Set go and built_with.
find_go() {
  local needed candidate version seen=""
  needed="$(sed -n 's/^go //p' go.mod)"
  for candidate in "${GO:-}" go "${root}/.venv/go/go/bin/go"; do
    [[ -n "${candidate}" && -n "$(command -v "${candidate}")" ]] || continue
    # Of the Go that it would fetch where it may: GOTOOLCHAIN.
    version="$("${candidate}" env GOVERSION 2>/dev/null || "${candidate}" version | awk '{ print $3 }')"
    if printf '%s\n' "${needed}" "${version#go}" | sort --version-sort --check=quiet; then
      go="${candidate}" built_with="${version}"
      return
    fi
    seen+=" ${candidate} is ${version};"
  done
  die 69 "no Go ${needed} or newer:${seen:- there is none;} run: scripts/dev-setup.sh go"
}

build() { # new directory
  local module source kubernetes
  kubernetes="$(version_of k8s.io/kubernetes)"
  # Without a version they call themselves v0.0.0-master, which kubectl warns of, and Kueue reads.
  local package=k8s.io/component-base/version
  local minor="${kubernetes#*.}"
  local is="-X ${package}.gitVersion=v${kubernetes} -X ${package}.gitMajor=${kubernetes%%.*} -X ${package}.gitMinor=${minor%%.*}"
  log "building Kubernetes ${kubernetes} with ${built_with}; minutes the first time"
  mkdir -p "$1/bin"
  # To stderr: stdout is the directory.
  # Compiled quickly: without what a debugger reads, which would not be linked (a tenth of the CPU), and without inlining,
  # but for Go's own packages (a quarter).
  CGO_ENABLED=0 "${go}" build -buildvcs=false -trimpath -ldflags "-s -w ${is}" \
    -gcflags "all=-dwarf=false -l" -gcflags std=-dwarf=false -o "$1/bin/" tool ./coredns ./pause >&2
  mv "$1/bin/server" "$1/bin/etcd"
  # What stands beside these programs, in the modules that they come from.
  for module in kueue:config/components kwok:kustomize; do
    source="$("${go}" list -m -f '{{.Dir}}' "sigs.k8s.io/${module%%:*}")"
    cp -R "${source}/${module#*:}" "$1/${module%%:*}"
  done
  chmod -R u+w "$1" # the module cache is read-only
}

main() {
  local key directory
  case "${1:-}" in
    "" | --go) ;;
    -h | --help) usage && exit 0 ;;
    *) usage_error "expected --go or nothing, got '$1'" ;;
  esac
  cd "${here}"
  find_go
  if [[ "${1:-}" == --go ]]; then
    command -v "${go}"
    return
  fi
  key="$( (cat go.mod go.sum coredns/main.go pause/main.go && declare -f build && echo "${built_with} $("${go}" env GOOS GOARCH)") |
    sha256sum | cut -c 1-16)"
  directory="${kept}/${key}"
  if [[ ! -d "${directory}" ]]; then
    mkdir -p "${kept}"
    exec 9>"${kept}/${key}.lock"
    flock 9
    if [[ ! -d "${directory}" ]]; then # nobody made it meanwhile
      rm -rf "${directory}.new"        # of one who was interrupted
      # A function that is asked `if` or `||` goes on after a failure.
      trap 'die 69 "the Kubernetes of tests could not be built; see above"' ERR
      build "${directory}.new"
      trap - ERR
      mv "${directory}.new" "${directory}"
    fi
    rm -f "${kept}/${key}.lock"
  fi
  touch "${directory}" # used now
  find "${kept}" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
  printf '%s\n' "${directory}"
}
main "$@"
