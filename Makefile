# From a fresh clone: `make demo` identifies an unknown payload on a simulated arm, `make space` a robot that floats,
# `make check` runs the quick checks, `make test` runs all of them.
# Everything is installed into .venv in this folder. Needs Python 3.10 to 3.13, git, make and a C++ compiler.

PYTHON ?= python3
# What `make demo` shows: ARM=lbr_med7 MODE=emulated, for instance.
ARM     ?= kinova_gen3_2f85
MODE    ?= mock
PAYLOAD ?= dumbbell_4lb
# TARE=none: without the motion of the empty hand before, which makes the bounds narrower.
TARE    ?= auto
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input

# The environment is complete in itself: nothing of a sourced ROS or of another environment may leak in.
ifneq ($(AMENT_PREFIX_PATH)$(_ROS_WHEELS_BOOTSTRAP_COMPLETE),)
unexport LD_LIBRARY_PATH
endif
unexport PYTHONPATH
unexport PYTHONHOME
# Compiled once, not again by each of the many processes of the tests.
unexport PYTHONDONTWRITEBYTECODE
unexport AMENT_PREFIX_PATH
unexport CMAKE_PREFIX_PATH
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE

MESSAGES := $(shell find sysid_msgs -type f)
KERNEL   := $(wildcard sysid_ros/core/kernel/*.[ch]pp sysid_ros/core/kernel/variants/*.cpp)

.PHONY: help demo space check test quick-tests pure-tests process-tests format lint types docs install keystore release clean

help:
	@echo "make demo     identify an unknown payload on a simulated arm; TARE=none: without moving the empty hand first"
	@echo "make space    identify a simulated robot that floats, and what it catches"
	@echo "make check    check format, style and types, and run the quick tests"
	@echo "make test     check and run everything"
	@echo "make format   format all Python files"
	@echo "make docs     build the documentation in site/"
	@echo "make install  only install everything into $(VENV)"
	@echo "make keystore make the keys of SROS2 in $(KEYSTORE), where ROS 2 is installed; docs/howto/network.md"
	@echo "make release  put all packages side by side into $(RELEASE), as bloom wants them; DRAFT=yes: to try"
	@echo "make clean    remove $(VENV) and everything that was built; results stay"

demo: install
	@$(BIN)/sysid demo --mode $(MODE) --model $(patsubst lbr_%,kuka_lbr_%,$(ARM)) --payload $(PAYLOAD) --tare $(TARE) $(if $(VIEW),--view)

space: install
	@$(BIN)/sysid space --speed 5 --object

# A worker for each core gets one file after the other, in the order of conftest.py: what waits or takes long comes first.
# A worker that dies is not replaced: the scheduler would wait for it for ever.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder

check: install
	@$(MAKE) --no-print-directory -j3 lint types quick-tests

# Tests with processes mostly wait: what only computes runs beside them in the time that they leave.
test: install
	@rm -f $(LATER)
	@$(MAKE) --no-print-directory -j4 NICE=nice IS_LATER=yes lint types pure-tests process-tests
	@if [ -e $(LATER) ]; then $(ALONE); fi

quick-tests: install
	@$(PYTEST) --kind pure -m "not slow"

# Beside the others they may get a small part of a slow machine: seconds of computing become many minutes.
pure-tests: install
	@$(NICE) $(PYTEST) -o cache_dir=.pytest_cache/pure -o timeout=1800 -o faulthandler_timeout=2400 --kind pure

# Tests in real time fail where a busy machine stops for a second: files that failed beside others must pass alone,
# in `make test` once everything else has ended.
ALONE = echo "once more, one at a time: the files that failed beside others" && $(BIN)/python -m pytest -q --failed-files
LATER := .pytest_cache/alone

process-tests: install
	@$(PYTEST) --kind processes || { test $$? = 1 && $(if $(IS_LATER),touch $(LATER),$(ALONE)); }

format: install
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: install
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: install
	@$(NICE) $(BIN)/mypy

docs: install
	@$(BIN)/python docs/make_nodes.py
	@$(BIN)/python docs/make_policy.py
	@PYTHONPATH=. $(BIN)/python docs/make_inputs.py
	@$(BIN)/mkdocs build --strict --quiet

install: $(STAMPS)/package

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; give another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else \
	  "error: $(PYTHON) is Python %d.%d, and ROS 2 comes as wheels for 3.10 to 3.13; give another one: make PYTHON=python3.12" % v)'
	@command -v $(CXX) >/dev/null || { echo "error: no C++ compiler ($(CXX)); install g++ or clang"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "error: python -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@# The pip that comes with older Pythons does not find its way through these requirements.
	@$(PIP) install --quiet --upgrade "pip>=25"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/requirements: requirements.txt requirements-test.txt requirements-docs.txt $(STAMPS)/venv
	@echo "installing what requirements.txt names (some minutes the first time)"
	@$(PIP) install --quiet -r requirements.txt -r requirements-test.txt -r requirements-docs.txt
	@touch $@

$(STAMPS)/messages: $(MESSAGES) $(STAMPS)/requirements
	@echo "compiling the messages (a minute or two)"
	@$(PIP) install --quiet --no-deps --force-reinstall ./sysid_msgs
	@touch $@

$(STAMPS)/package: setup.py setup.cfg package.xml pyproject.toml $(KERNEL) $(STAMPS)/messages
	@echo "compiling the kernel (one to two minutes)"
	@PYTHONWARNINGS=ignore $(PIP) install --quiet --no-deps --editable .
	@touch $@

# Keys and permissions of SROS2 in the folder KEYSTORE, for one suite in the namespace ROBOT, of ROS_DOMAIN_ID.
KEYSTORE ?= keystore
ROBOT    ?=
POLICY   := config/security/sysid_ros.policy.xml

keystore:
	@ros2 security generate_artifacts --help >/dev/null 2>&1 || { \
	  echo "error: 'ros2 security' is not there: it comes with an installed ROS 2 (package sros2) that has been sourced, not as a wheel"; exit 1; }
	@mkdir -p $(KEYSTORE)
	@sed 's|ns="/"|ns="/$(ROBOT)"|; s|path="/sysid_ros/|&$(if $(ROBOT),$(ROBOT)/)|' $(POLICY) > $(KEYSTORE)/$(or $(ROBOT),sysid_ros).policy.xml
	@ros2 security generate_artifacts -k $(KEYSTORE) -p $(KEYSTORE)/$(or $(ROBOT),sysid_ros).policy.xml
	@echo "$(KEYSTORE): keys and permissions for ROS_DOMAIN_ID=$${ROS_DOMAIN_ID:-0}$(if $(ROBOT), in the namespace $(ROBOT))"

# bloom looks for no packages inside of a package; this is the content of the branch that it is pointed at. What only a
# releaser can know must be filled in; DRAFT=yes makes the content all the same, to be tried.
RELEASE ?= build/release
DRAFT   ?=

release:
	@missing=; for file in package.xml sysid_msgs/package.xml sysid_broadcaster/package.xml; do \
	  if grep -q '<maintainer email="[^"]*\.invalid"' $$file; then missing="$$missing; a maintainer who can be reached in $$file"; fi; \
	  if ! grep -q '<url type="repository">' $$file; then missing="$$missing; <url type=\"repository\"> in $$file"; fi; \
	done; \
	if grep -qs 'name: "sysid_ros maintainers"' CITATION.cff; then missing="$$missing; the authors in CITATION.cff"; fi; \
	if [ -n "$$missing" ] && [ -z "$(DRAFT)" ]; then \
	  echo "error: no release before this is filled in: $${missing#; } (DRAFT=yes: make it all the same, to try it)"; exit 1; fi
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)/sysid_ros
	@git archive HEAD | tar -x -C $(RELEASE)/sysid_ros
	@for one in sysid_msgs sysid_broadcaster; do mv $(RELEASE)/sysid_ros/$$one $(RELEASE)/$$one && cp LICENSE $(RELEASE)/$$one/; done
	@rm $(RELEASE)/sysid_ros/colcon_defaults.yaml
	@echo "$(RELEASE): sysid_msgs, sysid_broadcaster and sysid_ros of $$(git rev-parse --short HEAD), side by side"

clean:
	rm -rf $(VENV) build install log dist site sysid_ros.egg-info .mypy_cache .pytest_cache .ruff_cache
	rm -f sysid_ros/core/kernel/*.so
