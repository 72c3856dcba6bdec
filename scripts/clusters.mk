# What `make` does for clusters: the images of the frameworks. A Makefile takes it with one line, `include scripts/clusters.mk`.
# Each target has two names, such as build and clusters-build. Where your Makefile has a target `build` of its own, that
# one stays, and ours is clusters-build alone. No variable of yours is changed, and your first target stays the default.

clusters_default_goal := $(.DEFAULT_GOAL)

# Those that images can be built of: your own folders may have a Dockerfile, too.
clusters_frameworks := $(filter $(patsubst %/start-master.sh,%,$(wildcard */start-master.sh)),$(patsubst %/Dockerfile,%,$(wildcard */Dockerfile)))
clusters_all := help build push pin-base lock $(clusters_frameworks:%=build-%) $(clusters_frameworks:%=push-%)
# The targets of the Makefiles that have been read so far, this one apart; those with a variable in their names are not seen.
clusters_theirs := $(shell awk -F : '/^[A-Za-z0-9_.%\/ -]+:/ && !/^[^:]*:+=/ {print $$1}' /dev/null $(filter-out %clusters.mk,$(MAKEFILE_LIST)))
clusters_ours := $(filter-out $(clusters_theirs),$(clusters_all))
# `make build push` without what a push needs stops before the build.
clusters_to_push := $(if $(filter push% clusters-push%,$(filter $(clusters_ours) clusters-%,$(MAKECMDGOALS))),--to-push)

# dask/ is a folder: without .PHONY make calls such a target "up to date".
.PHONY: $(clusters_ours) $(clusters_all:%=clusters-%)

$(clusters_ours): %: clusters-%

clusters-help: ## list these targets
	@awk -F ':.*## ' -v ours=' $(clusters_ours) ' '/^clusters-[a-z-]+:.*## / {name = substr($$1, 10); \
	  printf "  %-16s %s\n", index(ours, " " name " ") ? name : $$1, $$2}' scripts/clusters.mk

clusters-build: ## build the images of all frameworks; build-dask one
	@./scripts/images.sh build $(clusters_frameworks) $(clusters_to_push)

clusters-push: clusters-build ## push them to REGISTRY, and record their digests; push-dask one
	@./scripts/images.sh push $(clusters_frameworks)

clusters-pin-base: ## print the base image by the digest that its registry has now, as a line for config.env
	@./scripts/images.sh pin-base

clusters-lock: ## lock every framework's env.yaml again, with uv; UV=/path/to/uv
	@bash -Eeuo pipefail -c '. common/lib.sh; exec_cluster lock "$$@"' lock "$(UV)" $(clusters_frameworks)

$(clusters_frameworks:%=clusters-build-%): clusters-build-%:
	@./scripts/images.sh build $* $(clusters_to_push)

$(clusters_frameworks:%=clusters-push-%): clusters-push-%: clusters-build-%
	@./scripts/images.sh push $*

.DEFAULT_GOAL := $(clusters_default_goal)
