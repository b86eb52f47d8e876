# The main targets are `make demo` and `make test`. Both need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the demo needs, and what the tests need beside it.
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.installed-dev
# uv takes half of the time of pip, and gets the sources of packages that pip reads from its environment. Python
# compiles a module at its first import, so that pip need not compile all of them.
INSTALL := $(if $(shell command -v uv),UV_FIND_LINKS="$$PIP_FIND_LINKS" UV_EXTRA_INDEX_URL="$$PIP_EXTRA_INDEX_URL" \
	uv pip install --python $(BIN)/python,$(BIN)/python -m pip install --no-compile) \
	--quiet --constraint constraints.txt --editable

# As many processes as cores. A file's tests stay in one process, which makes their fixtures once.
# PYTHONDONTWRITEBYTECODE of the environment is undone: processes of tests import Turret 15 % faster with bytecode.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist loadfile \
	--no-loadscope-reorder --durations=10

# The images, their labels, and the bills of materials beside them: make images TAG=0.2.0
TAG ?=
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
REVISION := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)

.PHONY: help setup demo test test-process nightly test-compose lint docs notebooks site release audit lock images clean

help:
	@echo "make demo            from raw events to recommendations over HTTP, until Ctrl-C"
	@echo "make demo ONCE=1     the same, and stop after the answer"
	@echo "make demo DATA=...   movielens-100k (and other sets of 'turret data fetch'), or the path of your events"
	@echo "make test            the tests that run within one process: at most three minutes"
	@echo "make test-process    one test of each promise with real services, commands and browsers: five minutes"
	@echo "make nightly         every test, with all rounds, planted faults and benchmarks with a threshold: hours"
	@echo "make test-compose    the production profile on a container engine, under load: 20 minutes, as root"
	@echo "make lint            ruff, mypy, whether the pages are current, and the site of the documents"
	@echo "make docs            regenerate the tables and figures of the pages"
	@echo "make notebooks       run the notebooks of examples/ and write their outputs into them: some minutes"
	@echo "make site            the documents as a website, in var/site"
	@echo "make release         what could be published, checked, in var/release; needs a network"
	@echo "make audit           known vulnerabilities of the installed packages; needs a network"
	@echo "make lock            the locks of the images, from constraints.txt; needs a network"
	@echo "make images          turret:serve and turret:train, with bills of materials in var/; TAG=... for other tags"
	@echo "make setup           create the virtual environment, in $(VENV)"
	@echo "make clean           remove the environment and var/demo"

setup: $(STAMP)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is $$($(PYTHON) --version); Turret needs Python 3.11 or newer: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[train,serve]'
	@touch $(INSTALLED)

$(STAMP): $(INSTALLED)
	$(INSTALL) '.[train,serve,answers,otel,dev]'
	@touch $(STAMP)

demo: $(INSTALLED)
	@$(BIN)/turret demo $(if $(DATA),"$(DATA)") $(if $(PREPARE),--prepare "$(PREPARE)") $(if $(ONCE),--once) $(if $(PORT),--port $(PORT))

test: $(STAMP)
	$(PYTEST) -m "not process and not nightly"

test-process: $(STAMP)
	$(PYTEST) -m "process and not nightly"

nightly: $(STAMP)
	$(INSTALL) '.[baselines,milvus,mlflow,pandas,spark,sql]' lightgbm
	$(BIN)/python -m benchmarks.engine_servers
	$(BIN)/python -m tests.nightly

test-compose: $(STAMP)
	$(BIN)/python -m deploy.compose_proof

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m benchmarks.docs --check
	$(BIN)/python -m deploy.site

site: $(STAMP)
	$(BIN)/python -m deploy.site

docs: $(STAMP)
	$(BIN)/python -m benchmarks.docs

# NAMES="shop losses" runs some of them. A notebook with a failing cell stays as it was.
notebooks: $(STAMP)
	$(BIN)/python -m benchmarks.notebooks $(NAMES)

release: $(STAMP)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[release]' || \
		{ echo "make release: build, twine and check-wheel-contents can't be installed; this needs a network with PyPI" >&2; exit 1; }
	$(BIN)/python -m deploy.release

audit: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[audit]' || \
		{ echo "make audit: pip-audit can't be installed; this needs a network with PyPI" >&2; exit 1; }
	$(BIN)/python -m pip_audit --local --skip-editable --progress-spinner off

lock: $(STAMP)
	$(BIN)/python -m pip install --quiet 'uv>=0.5'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python deploy/lock.py

# With a TAG, the images are turret:TAG and turret:TAG-train.
images:
	@mkdir -p var
	for target in serve train; do \
		case "$(TAG)-$$target" in -*) tag=$$target ;; *-serve) tag="$(TAG)" ;; *) tag="$(TAG)-train" ;; esac; \
		docker build --target $$target --tag "turret:$$tag" --build-arg VERSION="$(VERSION)" \
			--build-arg REVISION="$(REVISION)" --build-arg PIP_EXTRA_INDEX_URL="$$PIP_EXTRA_INDEX_URL" . && \
		deploy/sbom "turret:$$tag" >"var/sbom-$$tag.json" || exit 1; \
	done

clean:
	rm -rf $(VENV) var/demo
