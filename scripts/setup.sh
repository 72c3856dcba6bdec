#!/usr/bin/env bash
# Usage: setup.sh [FRAMEWORK...] [--apply]
#        setup.sh [FRAMEWORK...] --print | --tfvars
#
# What a tenancy of OCI needs so that clusters run there: show what is missing, or make it. For an administrator of the
# tenancy. Settings say what is needed: COMPARTMENT_OCID, SUBNET_OCID, WORK_DIR, REGISTRY or IMAGE, and those in the part
# "setup.sh, check.sh" of config.env.example. Without a FRAMEWORK, all of this checkout count.
#
# These are made: the group of those who launch, the dynamic group of the Job Runs, a policy, a security list of the
# subnet with what the frameworks' nodes need of each other, the bucket with a rule that deletes old clusters, a repository
# for each framework, a log group and one log for all nodes. Nothing that exists is removed or narrowed: statements and
# rules are added. Compartments, the subnet and the project are yours to make: docs/oci.md.
#
#   --apply         make what is missing, with oci-cli, and print what is missing in config.env; a second time nothing changes
#   --print         print all that is needed, for whoever may make it; nobody is asked, and with OCI_CLI_REGION no profile
#                   of oci-cli is needed
#   --tfvars        print variables of scripts/templates/terraform, which makes the same; nobody is asked
#   --backend NAME  oci, which is the only one with a tenancy
#   --version       the release or the commit that this is
#   -h, --help      this text
#
# Examples:
#   setup.sh dask ray                          what is missing for these two?
#   setup.sh dask ray --apply
#   setup.sh --print | grep '^allow ' >policy.txt
#   setup.sh --tfvars >scripts/templates/terraform/terraform.tfvars.json
#
# stdout: what is shown. Exit: 0 shown, or made; 2 wrong usage; 69 OCI did not answer, or refused; 75 what was made is not
# seen yet; 77 you may not; 78 a setting is wrong, or what is there does not fit.
set -Eeuo pipefail
# A Ctrl-C ends this at once, until run_verb passes it on. No program is run before: a bash 5.2 that is interrupted just
# as it begins to wait for one may loop for ever.
trap 'echo "${0##*/}: stopped" >&2 || :; exit 143' INT TERM HUP
here="${BASH_SOURCE[0]}"
[[ ! -L "${here}" ]] || here="$(readlink -f "${here}")"
[[ "${here}" == */* ]] || here="./${here}"
# shellcheck source=common/lib.sh
source "${here%/*}/../common/lib.sh"

run_verb setup "$@"
