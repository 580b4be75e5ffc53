# Everything is made in .venv and .build; nothing outside this folder is touched. `make help` lists the commands.
SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
# auto: cuda where there is an NVIDIA card, else cpu; docs/build-profiles.md has all of them.
PROFILE ?= auto
CUDA_ARCHS ?=
ARGS ?=
PYTEST_ARGS ?=
MINUTES ?= 5

VENV := .venv
PY := $(VENV)/bin/python
# One folder for each place: environments and build trees hold absolute paths, so a moved checkout starts anew.
STAMPS := .build/stamps/$(shell pwd | cksum | cut -d' ' -f1)
STEP := sh scripts/step.sh
INSTALL := $(PY) -m pip install --no-deps --require-hashes
JOBS := $(shell nproc)
SANITIZERS := thread address

# Caches of the tools, and temporary files: a fresh HOME stays empty.
export PIP_CACHE_DIR := $(CURDIR)/.build/cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
CCACHE_DIR ?= $(CURDIR)/.build/cache/ccache
export CCACHE_DIR
export TMPDIR := $(CURDIR)/.build/tmp
# pip asks rustc for its version, and a rustup in front of it makes its folder where this says.
export RUSTUP_HOME := $(CURDIR)/.build/cache/rustup
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
ifneq ($(shell command -v ccache),)
export CMAKE_C_COMPILER_LAUNCHER := ccache
export CMAKE_CXX_COMPILER_LAUNCHER := ccache
export CMAKE_CUDA_COMPILER_LAUNCHER := ccache
# What ccache asks for before it keeps what was compiled with precompiled headers.
export CCACHE_SLOPPINESS := pch_defines,time_macros,include_file_mtime,include_file_ctime
endif
# Nothing from an activated environment or a user's site-packages may leak into the build.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Hundreds of processes of a test run would compile the same modules anew; `make clean` removes what they keep.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE := 1

.PHONY: help serve build dist test test-begin test-clients test-deploy test-wheel soak lint lint-python lint-cpp format lock page-libraries clean cpp-tests run-cpp-tests FORCE

help:  ## This list
	@echo "Unpaced: make COMMAND [PYTHON=python3.12] [PROFILE=auto]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '%-14s %s\n' "  $$name" "$$text"; done
	@echo "Profiles: auto $(sort $(patsubst engine_ext/profiles/%.toml,%,$(wildcard engine_ext/profiles/*.toml)))"

serve: build  ## Build if needed, then serve the demo model on 127.0.0.1:8080; ARGS="-m x.gguf --port 9000"
	@exec $(VENV)/bin/unpaced serve $(ARGS)

build: $(STAMPS)/extension  ## Set everything up: .venv, llama.cpp, the native engine

# Of this machine's Pythons it takes 3.11 and one later, unless PYTHONS says which.
dist: PROFILE := $(if $(filter file,$(origin PROFILE)),cpu-portable,$(PROFILE))
dist: $(STAMPS)/venv  ## Wheels for other machines, in dist/; PYTHONS="python3.11 python3.12"
	@$(PY) scripts/wheels/make_dist.py --profile "$(PROFILE)" --cuda-archs "$(CUDA_ARCHS)" --jobs $(JOBS) \
	  $(PYTHONS:%=--python %)

# Three files of tests at a time on two cores, since a part of a test's time is waiting; one where a card's memory would be shared.
TEST_PROCESSES := $(if $(wildcard /dev/nvidia0),0,3)

# pip, lint and compilers share the cores: each by itself leaves one idle, at its end at the latest.
test: test-begin  ## Lint, types, C++ tests with sanitizers, then pytest; PYTEST_ARGS="-k ring"
	@echo "$(LINT)"
	@$(MAKE) -j$(JOBS) ASKED=1 lint-python lint-cpp $(CPP_PROGRAMS)
	@$(MAKE) run-cpp-tests
	@echo "pytest"
	@$(PY) -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)
	@[ -n "$(PYTEST_ARGS)" ] || sh scripts/test_time.sh end $(STAMPS)/test-time

test-begin: $(STAMPS)/extension
	@sh scripts/test_time.sh begin $(STAMPS)/test-time

test-clients: $(STAMPS)/dev $(STAMPS)/clients  ## openai, litellm, lm-eval, Vercel's ai and others, each for real, against the server
	@echo "clients"
	@$(PY) -m pytest tests/e2e/test_clients.py $(PYTEST_ARGS)

# What clang-format is for: all C++ and CUDA of ours.
CPP_FILES = $(sort $(shell find csrc tests -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc'))

test-deploy: $(STAMPS)/dev $(STAMPS)/deploy  ## Docker Compose, kubectl, Helm's library and Kubernetes' schemas read the files of deploy/
	@echo "files of deploy/"
	@$(PY) -m pytest tests/unit/deploy $(PYTEST_ARGS)

test-wheel: $(STAMPS)/dev  ## A wheel for any processor, as users and the image have it: built, installed by itself, asked
	@echo "wheel"
	@$(PY) -m pytest -s -m packaging tests/e2e/installed/test_wheel.py $(PYTEST_ARGS)  # -s: it says how far it is

soak: $(STAMPS)/dev  ## Requests that come and are cut by chance at the edge of memory: is something lost or left? MINUTES=60
	@echo "arrivals, for $(MINUTES) min"
	@$(PY) -m tests.bench.crowds.bench_arrivals --minutes $(MINUTES) --bound 300

LINT := ruff, mypy, import-linter, dead code, clang-format, clang-tidy, includes, folders, docs/files.md, docs/flags.md, docs/api-reference.md

lint: $(STAMPS)/dev  ## Style, types, who knows whom, pages that are made: what is wrong, changing nothing
	@echo "$(LINT)"
	@$(MAKE) -j2 ASKED=1 lint-python lint-cpp  # both by themselves: mypy has one thread

lint-python: $(STAMPS)/dev
	@$(PY) -m ruff check --quiet --output-format concise .
	@$(PY) -m ruff format --check --quiet . || { echo "Not formatted; make format does it:"; $(PY) -m ruff format --check .; }
	@$(PY) -m mypy --no-error-summary --cache-dir .build/cache/mypy
	@$(VENV)/bin/lint-imports --no-logo --cache-dir .build/cache/imports >.build/logs/imports.log || { cat .build/logs/imports.log; exit 1; }
	@$(PY) scripts/dead_code.py
	@$(PY) scripts/folder_sizes.py
	@$(PY) scripts/architecture_files.py --check
	@$(PY) scripts/flags_page.py --check
	@$(PY) scripts/api_page.py --check

lint-cpp: $(STAMPS)/dev
	@$(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES)
	@$(PY) scripts/clang_tidy.py
	@$(PY) scripts/include_layers.py

format: $(STAMPS)/dev  ## Format Python and C++ in place
	@$(PY) -m ruff check --quiet --fix-only --select I .
	@$(PY) -m ruff format .
	@$(VENV)/bin/clang-format -i $(CPP_FILES)

lock:  ## Bring the lock files up to date with pyproject.toml
	@test -x .build/uv/bin/uv || { $(PYTHON) -m venv .build/uv && .build/uv/bin/python -m pip install --quiet uv; }
	@PATH="$(CURDIR)/.build/uv/bin:$$PATH" sh scripts/lock.sh

page-libraries: $(STAMPS)/venv  ## Fetch the page's libraries again from npm, as scripts/page_libraries.py pins them
	@$(PY) scripts/page_libraries.py

clean:  ## Remove all that was made: .venv, .build and the tools' caches
	rm -rf .venv .build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- how it is made -------------------------------------------------------------------------------------------------

# The virtual environment with what runs and what builds. Made anew if its Python is gone.
$(STAMPS)/venv: requirements.lock requirements-build.lock
	@[ ! -d .build/stamps ] || [ -d $(STAMPS) ] || rm -rf .venv .build/stamps .build/llama .build/extension .build/cpp-*
	@mkdir -p $(STAMPS) "$$TMPDIR"
	@sh scripts/check-machine.sh $(PYTHON)
	@$(PY) -c 'import pip' 2>/dev/null || \
	  $(STEP) .build/logs/venv.log "Python environment: .venv ($$($(PYTHON) -V))" $(PYTHON) -m venv --clear $(VENV)
	@$(STEP) .build/logs/requirements.log "Python packages: requirements.lock, requirements-build.lock" \
	  $(INSTALL) -r requirements.lock -r requirements-build.lock
	@touch $@

# Asked every time (60 ms): it alone knows whether profile, compiler and processor still fit the installed build,
# and touches the stamp only when it installs another one. ASKED: it was, by the make that calls this one.
$(STAMPS)/llama: $(STAMPS)/venv $(if $(ASKED),,FORCE)
	@mkdir -p "$$TMPDIR"
	@$(PY) engine_ext/build_llama.py --profile "$(PROFILE)" --cuda-archs "$(CUDA_ARCHS)" --jobs $(JOBS) --install --stamp $@

# Redirect-editable: Python files are used where they lie, the native module goes to site-packages.
# What the build of llama.cpp has of CUDA stands in .build/extension.cmake.
$(STAMPS)/extension: $(STAMPS)/llama pyproject.toml $(shell find csrc -type f)
	@$(STEP) .build/logs/extension.log "Native engine: csrc (about a minute, some more with CUDA; seconds after a change)" \
	  $(PY) -m pip install --verbose --no-deps --no-index --no-build-isolation --editable . \
	  --config-settings=cmake.args="-C$(CURDIR)/.build/extension.cmake"
	@touch $@

$(STAMPS)/dev: $(STAMPS)/extension requirements-dev.lock
	@$(STEP) .build/logs/requirements-dev.log "Python packages: requirements-dev.lock" $(INSTALL) --no-compile -r requirements-dev.lock
	@touch $@

# 0.4 GB that only the tests of the manifests need; without them those skip.
$(STAMPS)/deploy: $(STAMPS)/dev requirements-deploy.lock
	@$(STEP) .build/logs/requirements-deploy.log "Python packages: requirements-deploy.lock" $(INSTALL) -r requirements-deploy.lock
	@touch $@

# The clients have environments of their own: what they need is nobody else's, and is large (1.1 GB, Node's 55 MB).
# Node brings its certificate authorities along: the system's are told to it, as every other tool here has them.
CLIENTS := .build/clients
$(STAMPS)/clients: requirements-clients.lock $(wildcard tests/e2e/clients/package*.json) tests/e2e/clients/vllm_file.py
	@mkdir -p $(STAMPS) "$$TMPDIR" $(CLIENTS)/node
	@$(CLIENTS)/python/bin/python -c 'import pip' 2>/dev/null || \
	  $(STEP) .build/logs/clients-venv.log "Python environment: $(CLIENTS)/python" \
	  $(PYTHON) -m venv --clear $(CLIENTS)/python
	@$(STEP) .build/logs/clients.log "Python packages: requirements-clients.lock" \
	  $(CLIENTS)/python/bin/python -m pip install --no-deps --require-hashes -r requirements-clients.lock
	@$(STEP) .build/logs/clients-vllm.log "One file of vLLM" \
	  $(CLIENTS)/python/bin/python tests/e2e/clients/vllm_file.py $(CLIENTS)/vllm_requests.py
	@if command -v npm >/dev/null; then \
	  cp tests/e2e/clients/package.json tests/e2e/clients/package-lock.json tests/e2e/clients/.npmrc $(CLIENTS)/node/; \
	  system=/etc/ssl/certs/ca-certificates.crt; [ ! -f $$system ] || export NODE_EXTRA_CA_CERTS="$${NODE_EXTRA_CA_CERTS:-$$system}"; \
	  $(STEP) .build/logs/clients-npm.log "npm packages: tests/e2e/clients/package-lock.json" \
	    npm ci --omit=optional --no-fund --no-audit --ignore-scripts --cache "$(CURDIR)/.build/cache/npm" --prefix $(CLIENTS)/node; \
	else echo "npm is not here: its clients are left out"; fi
	@touch $@

# A build tree without a sanitizer, for what they leave to it, and one for each. The trees stay: later only what changed
# is compiled. ninja takes its part of the cores from this make (+), and asks for none of its own.
CPP_PROGRAMS := $(addprefix cpp-programs-,plain $(SANITIZERS))

.PHONY: $(CPP_PROGRAMS)
$(CPP_PROGRAMS): cpp-programs-%: $(STAMPS)/venv
	+@STEP_NAME="$* " $(STEP) .build/logs/cpp-$*.log "C++ tests, sanitizer $*: compile" sh -c " \
	  $(VENV)/bin/cmake -S csrc -B .build/cpp-$* -G Ninja -DCMAKE_MAKE_PROGRAM='$(CURDIR)/$(VENV)/bin/ninja' \
	    -DPython_EXECUTABLE='$(CURDIR)/$(PY)' -DCMAKE_BUILD_TYPE=RelWithDebInfo -DUNPACED_BUILD_PYTHON=OFF \
	    -DUNPACED_BUILD_TESTS=ON -DUNPACED_SANITIZE=$(filter $(SANITIZERS),$*) && \
	  $(VENV)/bin/ninja -C .build/cpp-$* $(if $(filter plain,$*),unsanitized_tests)"

cpp-tests: $(STAMPS)/dev
	@$(MAKE) -j$(JOBS) ASKED=1 $(CPP_PROGRAMS)
	@$(MAKE) run-cpp-tests

# Three tests at a time, since much of their time is waiting; not while others are compiled, since some of them want both cores.
run-cpp-tests:
	@$(VENV)/bin/ctest --test-dir .build/cpp-plain --output-on-failure --parallel 3 --label-regex unsanitized
	@for sanitizer in $(SANITIZERS); do \
	  $(VENV)/bin/ctest --test-dir .build/cpp-$$sanitizer --output-on-failure --parallel 3; \
	done
