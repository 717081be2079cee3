# Every target does its own set-up. PYTHON=python3.13 chooses the Python, from 3.11 to 3.14: a `.venv` of another
# version is made anew (`make test PYTHON=python3.13`).
VENV := .venv
BIN := $(VENV)/bin
# How tests are spread over workers: they wait more than they compute, so over more than twice the cores of a small machine.
SPREAD ?= $(shell cat .ci/spread)
# What `make soak` and `make fuzz` do.
SECONDS := 600
AGENTS ?= 50
SEED ?= 1
# What `make proof` does.
KILLS ?= 100

# Each of pytest's workers would compile all tests anew, which takes longer than running most of them.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check format lint types slow real fuzz pins bench proof soak man generate prices screenshots clean

help:
	@echo "make demo    show the main job with a stand-in agent (20 s, leaves .venv and Python's caches)"
	@echo "make test    lint, types and tests; PYTHON=python3.13 chooses the Python (3.11 to 3.14)"
	@echo "make format  sort imports, fix and format the code as \`make lint\` wants it"
	@echo "make slow    the tests that take longer"
	@echo "make real    the tests with real programs and projects, skipped where there are none: apt install cargo chromium"
	@echo "             dpkg-dev git-lfs npm prometheus; pip install pre-commit uv"
	@echo "make bench   measure speed and size"
	@echo "make proof   kill the daemon amid turns, count what is lost, doubled or shown wrong: KILLS=100 SEED=1"
	@echo "make fuzz    try the property tests with one seed after the other: SECONDS=600 SEED=1"
	@echo "make pins    write .ci/constraints.txt anew: the newest versions of all that .venv gets"
	@echo "make soak    keep many agents busy with random faults: SECONDS=600 AGENTS=50 SEED=1"
	@echo "make man     write the man pages anew from what the programs' help is made from"
	@echo "make generate  write the clients' table of methods, and their part of docs/protocol.md, from the daemon's code"
	@echo "make prices  write the table of list prices anew (substrat/core/prices.toml), from the package genai-prices"
	@echo "make screenshots  record the pictures of docs anew, with stand-in agents; the page's in Chromium"
	@echo "make clean   remove what was built"

demo:
	@sh .ci/setup runtime
	@$(BIN)/substratctl demo

man:
	@sh .ci/setup runtime
	@$(BIN)/python -m substrat.manpages man

generate:
	@sh .ci/setup runtime
	@$(BIN)/python -m substrat.daemon.servers.generate

prices:
	@sh .ci/setup runtime
	@place=$$(mktemp -d) && $(BIN)/python -m pip install -q --target "$$place" genai-prices && \
	PYTHONPATH=$$place $(BIN)/python .ci/prices.py substrat/core/prices.toml; status=$$?; rm -r "$$place"; exit $$status

screenshots:
	@sh .ci/setup runtime
	@$(BIN)/python docs/screenshots/record.py
	@$(BIN)/python docs/screenshots/page.py

test: check
	@$(BIN)/pytest -q $(SPREAD) -m "not slow"

slow:
	@sh .ci/setup dev
	@$(BIN)/pytest -q $(SPREAD) -m slow --ignore=tests/real

real:
	@sh .ci/setup dev
	@$(BIN)/pytest -q $(SPREAD) -m real -rs

check: lint types

format:
	@sh .ci/setup dev
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

lint: $(VENV)/asynchronous-code-is-clean
	@sh .ci/setup dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

# This linter is slow: it reads what is asynchronous and has changed since it found nothing, all if it has changed itself.
ASYNCHRONOUS := $(shell grep -rlwE 'async|trio|asyncio' --include='*.py' substrat mcp_server)
$(VENV)/asynchronous-code-is-clean: $(ASYNCHRONOUS) Makefile .ci/constraints.txt
	@sh .ci/setup dev
	@printf '%s\0' $(if $(filter-out %.py,$?),$(ASYNCHRONOUS),$?) | xargs -0 -n 20 -P "$$(nproc)" $(BIN)/flake8-async \
		--disable ASYNC114,ASYNC124,ASYNC222,ASYNC230,ASYNC240,ASYNC900,ASYNC910,ASYNC911,ASYNC912,ASYNC913
	@touch $@

types:
	@sh .ci/setup dev
	@$(BIN)/mypy

fuzz:
	@sh .ci/setup dev
	@end=$$(($$(date +%s) + $(SECONDS))); seed=$(SEED); \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
		echo "seed $$seed"; \
		$(BIN)/pytest -q $(SPREAD) -m "hypothesis and not slow" \
			--hypothesis-profile fuzz --hypothesis-seed "$$seed" || \
			{ echo "once more: make fuzz SECONDS=1 SEED=$$seed"; exit 1; }; \
		seed=$$((seed + 1)); \
	done

pins:
	@sh .ci/setup pins

bench:
	@sh .ci/setup dev
	@$(BIN)/python benchmarks/run.py

proof:
	@sh .ci/setup dev
	@$(BIN)/python benchmarks/proof.py --kills $(KILLS) --seed $(SEED)

soak:
	@sh .ci/setup dev
	@$(BIN)/python benchmarks/soak.py --seconds $(SECONDS) --agents $(AGENTS) --seed $(SEED)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
