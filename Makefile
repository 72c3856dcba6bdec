SHELL := bash
.DEFAULT_GOAL := help
-include config.mk # yours, git-ignored: PYTHON = python3.12 ...

PYTHON ?= python3
BATS ?= node_modules/bats/bin/bats
UV ?= .venv/bin/uv
export PYTHON BATS

python_tools := .venv/.dev-installed
audit_tools := .venv/audit/.installed
docs_tools := .venv/docs/.installed
node_tools := node_modules/.dev-installed
run := .venv/bin/python -I -m

# Every file that git knows or could add: a new file is linted before it is committed. No name has a space.
files = $(wildcard $(shell git ls-files --cached --others --exclude-standard -- $(1)))
python_files = $(call files,'*.py')
shell_files = $(shell .venv/bin/shfmt -f $(files)) # by extension or first line; shellcheck knows no zsh
yaml_files = $(call files,'*.yaml' '*.yml')

# What a line of config.mk sets for images; what the command line sets is exported anyway.
chosen := REGISTRY TAG CODE_DIR EXTRA_ENV TORCH ENV_FILE SYSTEM_PACKAGES BASE_IMAGE RUN_AS PLATFORM DOCKER BUILD_FLAGS
$(foreach name,$(chosen),$(if $($(name)),$(eval export $(name))))

include scripts/clusters.mk # build push pin-base

# tests/ is a folder: without .PHONY make calls such a target "up to date".
.PHONY: help test test-all test-nightly test-quick test-unit test-scripts test-clusters test-kubernetes lint format lock wheel audit bench chaos demo-oci screenshots smoke-oci smoke-gpu coverage docs settings clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / && !/^clusters-help/ {sub(/^clusters-/, "", $$1); printf "  %-16s %s\n", $$1, $$2}' scripts/clusters.mk $(firstword $(MAKEFILE_LIST))

test: $(python_tools) $(node_tools) ## the package, the scripts and some real clusters: 8 minutes, as any user; installs what it needs
	./tests/run.sh

test-all: $(python_tools) $(node_tools) ## all that a change must pass: half an hour; needs root, Go, a container engine, a compiler
	./tests/run.sh unit scripts core slow clusters kubernetes

test-nightly: $(python_tools) $(node_tools) ## the rest, random faults, and all of test-all on a busy machine: hours, gigabytes
	status=0; ./tests/run.sh --measure unit slow || status=1; ./tests/run.sh nightly || status=1; \
	  FAULTS=100 ./tests/run.sh --loaded unit scripts core slow clusters kubernetes || status=1; \
	  $(MAKE) chaos N=20 || status=1; exit $$status

test-quick: $(python_tools) $(node_tools) ## what an edit is tested by: the package, the scripts, one Dask cluster
	./tests/run.sh --quick unit scripts example

test-unit: $(python_tools) ## the Python package, with injected clocks
	./tests/run.sh unit slow

test-scripts: $(python_tools) $(node_tools) ## the scripts, with stubs for what they call
	./tests/run.sh scripts

test-clusters: $(python_tools) ## real clusters of real processes
	./tests/run.sh core clusters

test-kubernetes: $(python_tools) ## a real Kubernetes, with Kueue and nodes; builds it, 6 minutes once, with Go
	./tests/run.sh kubernetes

lint: $(python_tools) ## every linter there is, changes nothing
	$(run) ruff check $(python_files)
	$(run) ruff format --check $(python_files)
	$(run) mypy
	.venv/bin/shellcheck -x $(filter-out %.zsh,$(shell_files))
	.venv/bin/shfmt -i 2 -ci -d $(shell_files)
	$(run) yamllint --strict $(yaml_files)
	.venv/bin/hadolint $(call files,'*/Dockerfile')

format: $(python_tools) ## let the formatters rewrite what they can
	$(run) ruff check --fix-only $(python_files)
	$(run) ruff format $(python_files)
	.venv/bin/shfmt -i 2 -ci -w $(shell_files)

lock: $(python_tools) # besides what clusters.mk says: lock requirements*.in and every framework's env.yaml again, with uv; npm does package.json
	$(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	  --custom-compile-command 'make lock' common/requirements-oci.in --output-file common/requirements-oci.txt
	$(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	  --constraint common/requirements-oci.txt \
	  --custom-compile-command 'make lock' common/requirements.in --output-file common/requirements.txt
	$(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	  --constraint common/requirements.txt \
	  --custom-compile-command 'make lock' common/requirements-install.in --output-file common/requirements-install.txt
	$(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	  --constraint common/requirements-oci.txt \
	  --custom-compile-command 'make lock' common/requirements-kubernetes.in --output-file common/requirements-kubernetes.txt
	for backend in oci kubernetes; do \
	  $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --constraint "common/requirements-$$backend.txt" --custom-compile-command 'make lock' \
	    "common/requirements-$$backend-preview.in" --output-file "common/requirements-$$backend-preview.txt" || exit 1; \
	done
	$(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	  --custom-compile-command 'make lock' requirements-dev.in --output-file requirements-dev.txt
	$(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	  --custom-compile-command 'make lock' requirements-audit.in --output-file requirements-audit.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --custom-compile-command 'make lock' requirements-docs.in --output-file requirements-docs.txt
	PYTHONPATH=common .venv/bin/python -m oci_cluster lock $(UV) $(patsubst %/env.yaml,%,$(filter-out common/%,$(wildcard */env.yaml))) \
	  common/env-notebook.yaml $(wildcard scripts/sessions/*/env.yaml)

wheel: ## write a release into dist/: one file, which new.sh --from, update.sh and pip take
	@PYTHONPATH=common $(PYTHON) -m oci_cluster.project.wheel dist

audit: $(python_tools) $(audit_tools) ## look all that is locked up in osv.dev, the database of known vulnerabilities
	.venv/bin/python tests/audit.py .venv/audit/bin/pip-audit $(OSV_URL)

bench: $(python_tools) ## measure clusters beside bare Dask, bare torchrun, bare Ray and the bare SDK
	@failed=""; for part in dask pytorch ray oci; do \
	  .venv/bin/python tests/bench/bench_$$part.py || failed="$$failed $$part"; \
	done; [ -z "$$failed" ] || { echo "bench: not measured:$$failed" >&2; exit 1; }

chaos: $(python_tools) ## random faults on real clusters: N= schedules, from the seed SEED=, of FRAMEWORKS= or BACKEND=
	PYTHONPATH=tests:tests/kubernetes .venv/bin/python -m chaos $(if $(BACKEND),--backend $(BACKEND)) $(if $(N),--count $(N)) $(if $(SEED),--seed $(SEED)) $(if $(FRAMEWORKS),--frameworks $(FRAMEWORKS))

demo-oci: $(python_tools) ## a launch on a stand-in for OCI, and the requests that it makes; LAUNCH='pytorch 2'
	.venv/bin/python tests/demo_oci.py $(LAUNCH)

screenshots: $(python_tools) ## make the pictures of docs/images anew, in a real browser
	PYTHONPATH=tests .venv/bin/python tests/screenshots.py

smoke-oci: $(python_tools) ## in your tenancy: which guesses about OCI are right? shows time and money, and asks; ARGS=--help
	@PYTHONPATH=tests:common .venv/bin/python -m smoke_oci $(ARGS)

smoke-gpu: ## on a machine with GPUs: is what docs/gpu.md says right? 8 minutes at most; ARGS=--help
	@PYTHONPATH=tests:common $(if $(wildcard .venv/bin/python),.venv/bin/python,$(PYTHON)) -m smoke_gpu $(ARGS)

coverage: $(python_tools) ## the Python rings, then a page per file in .coverage-data/html
	./tests/run.sh --measure unit slow core clusters
	$(run) coverage html

settings: ## write names, defaults and examples of settings into the pages that say what they mean
	@PYTHONPATH=tests:common $(if $(wildcard .venv/bin/python),.venv/bin/python,$(PYTHON)) -m settings_pages

docs: $(docs_tools) settings ## build the site of the pages into .docs, with search; a warning is an error
	.venv/docs/bin/sphinx-build --fail-on-warning --keep-going --quiet -c docs . .docs
	@echo .docs/README.html

clean: ## remove caches and coverage; keeps .venv, node_modules and your .clusters
	rm -rf .coverage-data .docs .mypy_cache .pytest_cache .ruff_cache
	find . \( -name .git -o -name .venv -o -name node_modules -o -name .clusters \) -prune \
	  -o -type d -name __pycache__ -exec rm -rf {} +

$(python_tools): requirements-dev.txt
	./scripts/dev-setup.sh python
	@touch $@

# What only one target needs, in an environment of its own.
$(audit_tools) $(docs_tools): .venv/%/.installed: requirements-%.txt
	$(PYTHON) -m venv .venv/$*
	.venv/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

# Allowed to fail: the other rings need no bats. tests/run.sh names the ring that could not run.
$(node_tools): package-lock.json
	-./scripts/dev-setup.sh node && touch $@
