.DEFAULT_GOAL := help
.PHONY: help setup lab test check format docs bench lock

SHELL := /bin/bash
BIN := .venv/bin
PYTHON_FILES := agent tests $(wildcard bench)
BPF_FILES := $(wildcard bpf/*.c bpf/*.h)
# One cache for each user, so that checks run as root and without root do not get in each other's way.
CACHE := $(shell mkdir -p .cache/$$(id -u) 2>/dev/null && echo .cache/$$(id -u) || echo $$HOME/.cache/lastcall)
export RUFF_CACHE_DIR := $(CACHE)/ruff
export MYPY_CACHE_DIR := $(CACHE)/mypy
# Options for the command behind lab, test or bench, as in: make lab ARGS=--all
ARGS ?=

help:
	@echo 'sudo make lab     play rolling updates on this machine and compare what Lastcall counts with what clients saw'
	@echo 'sudo make test    run every check and test'
	@echo 'make check        formatting, lint, types and import rules (no root once set up)'
	@echo 'sudo make bench   measure what the agent costs'

setup:
	@scripts/setup

lab: setup
	$(BIN)/agent lab $(ARGS)

test: check
	$(BIN)/python -m pytest -o cache_dir=$(CACHE)/pytest $(ARGS)

check: setup
	$(BIN)/ruff format --check --quiet $(PYTHON_FILES)
	$(BIN)/ruff check --quiet $(PYTHON_FILES)
	$(BIN)/mypy --no-error-summary $(PYTHON_FILES)
	$(BIN)/lint-imports --cache-dir $(CACHE)/import-linter --no-logo
	$(if $(BPF_FILES),$(BIN)/clang-format --dry-run -Werror $(BPF_FILES))

format: setup
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/ruff check --fix-only --quiet $(PYTHON_FILES)
	$(if $(BPF_FILES),$(BIN)/clang-format -i $(BPF_FILES))

docs: setup
	$(BIN)/python -m agent.outputs.metric_document >docs/metrics.md

bench: setup
	$(BIN)/python -m bench $(ARGS)

lock:
	scripts/lock
