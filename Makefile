# The project's commands. Each sets up all that it needs from a bare clone (see .ci/setup).
#   make demo [FOR=60s]          the whole loop on this machine
#   make test [TESTS=tests/...]  linters, types, import contracts, tests
#   make test-vm [TESTS=tests/...]  the kernel tests again, on a pure cgroup v2 machine under qemu
#   make kube                    build the control plane of Kubernetes that tests use (minutes, once)
#   make test-kube [TESTS=tests/kube/...]  the tests on a real API server and scheduler
#   make lint                    the first three
#   make bench NAME=... [ARGS=]  one benchmark; ends with one line of JSON, exit 1 if a goal is missed
#                                (NAME=reservations also takes TRACES=DIR)
#   make conformance FILES=...   the peer's vectors
#   make clean                   remove what the above made here (what is in ~/.cache stays)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
TESTS ?= tests
# What touches neither a broker nor the kernel; the rest is timed, and so runs alone.
PURE := tests/agents tests/arch tests/conformance tests/determinism tests/schemas tests/sim
FOR ?=
ARGS ?=
TRACES ?=

.PHONY: help venv setup kube demo test test-kube test-vm lint bench conformance clean

help:
	@sed -n 's/^#   //p' Makefile

venv:
	@.ci/setup venv

setup:
	@.ci/setup venv broker

kube: venv
	@.ci/setup kube

demo: setup
	@$(BIN)/slackwater demo $(if $(FOR),--for $(FOR)) $(ARGS)

lint: venv
	@echo "== ruff" && $(BIN)/ruff check -q .
	@echo "== mypy" && $(BIN)/mypy
	@echo "== import contracts" && $(BIN)/lint-imports --no-cache --no-logo

test: setup lint
	@.ci/setup browser
ifeq ($(TESTS),tests)
	@code=0; echo "== pytest, rules without a machine: on all cores"; \
	$(BIN)/python -m pytest --numprocesses=logical --dist=worksteal --durations=5 $(PURE) $(ARGS) || code=$$?; \
	echo "== pytest, brokers, kernel and clusters: one at a time"; \
	$(BIN)/python -m pytest --durations=15 tests $(PURE:%=--ignore=%) $(ARGS) || code=$$?; \
	exit $$code
else
	@echo "== pytest"
	@$(BIN)/python -m pytest --durations=15 $(TESTS) $(ARGS)
endif

test-kube: setup kube
	@$(BIN)/python -m pytest --durations=5 $(if $(filter-out tests,$(TESTS)),$(TESTS),tests/kube) $(ARGS)

test-vm: setup
	@.ci/setup vm
	@$(BIN)/python -m tests.vm $(ARGS) $(filter-out tests,$(TESTS))

bench: setup
	@test -n "$(NAME)" || { echo "bench: say which: make bench NAME=node_agent" >&2; exit 2; }
	@TRACES="$(TRACES)" $(BIN)/python -m tests.bench.$(subst -,_,$(NAME)) $(ARGS)

conformance: venv
	@test -n "$(FILES)" || { echo "conformance: say which: make conformance FILES='a.json b.json'" >&2; exit 2; }
	@$(BIN)/python -m tests.conformance.run $(FILES) $(ARGS)

clean:
	@rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
