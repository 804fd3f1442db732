# Each target is a plain cargo line that also works typed by hand (`test` runs binaries two at once, too); `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TOOLS := $(TARGET)/tools
export QUIVER_TOOLS := $(TOOLS)
export CONFORMANCE_DIR ?= $(abspath $(CURDIR)/../shared/conformance)
SUITE ?= promql

.PHONY: help run build test check lint fmt conformance conformance-written e2e soak bench figures docs tools compiler

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 22

run: build ## build and run Quiver with demo telemetry flowing in
	$(TARGET)/release/quiver demo

build: compiler ## build the release binary
	@[ -e $(TARGET)/release/quiver ] || echo "The first build compiles about 500 crates, which takes about 20 minutes on 2 idle cores; later builds take seconds."
	cargo build --release -p quiver

# A fixed seed keeps chance out of it; `soak` draws new ones. The summary at the end says what failed, and why.
test: compiler tools ## install what the tests need and run all of them
	@PROPTEST_RNG_SEED=1 tests/tools/run.py cargo test --workspace --no-fail-fast --tests

check: ## type-check everything
	cargo check --workspace --all-targets

lint: compiler ## check formatting and lints; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## format the code
	cargo fmt --all

conformance: compiler ## open test cases of other projects: make conformance SUITE=promql|logsql|traces|olap|alerting|sql
	cargo test -p quiver-tests --test conformance -- $(SUITE)

conformance-written: compiler ## the same, with each plan written and read by a second engine
	QUIVER_QUERY__THROUGH_CODEC=true cargo test -p quiver-tests --test conformance -- $(SUITE)

e2e: compiler tools ## only the tests of the real binary
	cargo test -p quiver -p quiver-tests --test cli --test e2e --test clients --test crash

# Promises of speed are about release builds, so their tests run against the release binary.
soak: build tools ## tests that take minutes: long kill loops, fuzzing, differential tests, promises of speed
	QUIVER_SOAK=1 cargo test --workspace -- --nocapture
	QUIVER_SOAK=1 QUIVER_BINARY=$(TARGET)/release/quiver cargo test -p quiver-tests --test crash -- --nocapture \
		neither_senders_nor_askers_starve_the_others a_long_log_is_replayed_fast_and_within_memory

bench: compiler ## criterion benches
	cargo bench -p quiver-benches

figures: build ## measure configuration, access, analytics and alerting against their goals: make figures ONLY=graph
	QUIVER_BIN=$(TARGET)/release/quiver python3 benches/platform.py $(addprefix --only ,$(ONLY))

docs: ## regenerate the generated documents
	UPDATE=1 cargo test -p quiver document
	UPDATE=1 cargo test -p quiver-tests --test house document

compiler:
	@command -v cc >/dev/null && command -v make >/dev/null || { echo "installing a C compiler"; sudo=; [ $$(id -u) = 0 ] || sudo=sudo; $$sudo apt-get update -q && $$sudo apt-get install -qy build-essential; }

tools: ## install the real clients that tests use
	@tests/tools/install.sh $(TOOLS)
