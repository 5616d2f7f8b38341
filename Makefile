# Two commands do most of the work: `make serve` and `make test`. `make help` lists the rest.
# PYTHON names the interpreter: for .venv, and for `make record` and `make verify` the one that runs the notebooks as it is.
# PORT is where `make serve` listens. The repository's address stands in pyproject.toml.

PORT ?= 8000
WORKERS ?= 2
NOTEBOOKS ?=
TORCH := torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
SITE := $(VENV)/site.stamp
TEST := $(VENV)/test.stamp

# Without PYTHON, notebooks run in .venv. With PYTHON they run in that python as it is: no venv, no network.
ifdef PYTHON
RUNNER := $(PYTHON)
RUNNER_READY :=
else
PYTHON := python3
RUNNER := $(BIN)/python
RUNNER_READY := $(TEST)
endif

export NO_MKDOCS_2_WARNING := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPATH := $(CURDIR)
PIP := $(BIN)/python -m pip install -q --no-deps --require-hashes
RETRY := { echo "Makefile: the download failed (see above). Fix: check the network and run the same command again; what is installed stays." >&2; exit 1; }

.PHONY: help serve site check test notebooks record verify pair install lock clean
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "  PORT=8001 make serve · NOTEBOOKS=one_gpu make record · PYTHON=python3 make record"

serve: $(SITE) ## build the site and serve it with live reload
	@$(BIN)/python -m evidence port $(PORT)
	@echo "http://127.0.0.1:$(PORT)/ in a few seconds; Ctrl-C ends it"
	@$(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:$(PORT)

site: $(SITE) ## build the site into site/
	@$(BIN)/python -m mkdocs build --strict

check: $(SITE) ## what needs no execution: pages, figures, pairs, records, style (seconds)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python -m evidence check

test: $(TEST) check ## everything: the checks, the snippets, the notebooks, the built site (minutes)
	@echo "Running the tests, notebooks included: 7 to 12 minutes on 2 cores"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

notebooks: $(TEST) ## run the notebooks as tests, against their records
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -v notebooks

record: $(RUNNER_READY) ## execute notebooks (NOTEBOOKS="a b", default all); write .ipynb and records
	@$(RUNNER) -m evidence record $(NOTEBOOKS)

verify: $(RUNNER_READY) ## execute notebooks, compare with the records, write nothing
	@$(RUNNER) -m evidence verify $(NOTEBOOKS)

pair: $(SITE) ## write the install cell of this version into every notebook
	@$(BIN)/python -m evidence pair

install: $(TEST) ## install everything into .venv

lock: $(SITE) ## resolve requirements/*.in into requirements/*.txt, with hashes
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-header --no-annotate requirements/site.in -o requirements/site.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-header --no-annotate requirements/test.in -o requirements/test.txt \
	  $(foreach package,torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx,--no-emit-package $(package))

clean: ## remove .venv and site/
	rm -rf $(VENV) site

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Makefile: $(PYTHON) is $$($(PYTHON) --version 2>&1), and this project needs Python 3.11 or later. Fix: name one, PYTHON=python3.12 make $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Makefile: $(PYTHON) could not make a virtual environment. Fix: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }

$(SITE): requirements/site.txt | $(VENV)/bin/python
	@echo "Installing what the site needs into $(VENV): half a minute"
	@$(PIP) -r requirements/site.txt || $(RETRY)
	@touch $@

# torch is not in the lock: a machine without a GPU takes a CPU build, one with a GPU the CUDA build, by plain pip.
$(TEST): requirements/test.txt $(SITE)
	@echo "Installing what the examples need into $(VENV): a minute or two"
	@$(PIP) -r requirements/test.txt || $(RETRY)
	@$(BIN)/python -m pip install -q $(TORCH) || $(RETRY)
	@touch $@
