# Everything is reached from here; `make help` lists it.
#
# Services for tests, demo and benchmarks are real ones, started on free ports and stopped again.
# What they need is installed by `make services`, which every such target runs first; it costs
# nothing when all is there.

SHELL := /bin/bash
CARGO ?= cargo
POSTGRES_VERSIONS ?= 14 15 16 17 18
FUZZ_SECONDS ?= 10
CYCLONEDX_VERSION ?= 0.5.9

# Integration tests mostly wait for servers, so more of them than cores run side by side.
export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
export WALPOST_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/walpost

GOLDEN = golden::every_case_is_written

# The build that torture and soak run; `dev` is the one that the tests have already.
PROFILE ?= dev
TORTURE = $(CARGO) test --profile $(PROFILE) --locked --quiet --test torture --
export ROUNDS SEED FROM MODE EVERY SOAK_SECONDS

.DEFAULT_GOAL := help
.PHONY: help build demo test torture torture-check soak test-matrix bench lint deny fuzz fuzz-keep sbom services clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the release binary, target/release/walpost
	$(CARGO) build --release --locked

demo: services ## orders in Postgres, records in Kafka, a SIGKILL in between; KEEP=1 leaves it running
	$(CARGO) test --release --locked --quiet --test demo

test: services ## unit, property, integration and documentation tests
	# The golden cases keep every core busy for minutes: beside them, tests that watch the clock
	# would measure the machine.
	$(CARGO) test --locked -- --skip $(GOLDEN)
	$(CARGO) test --locked --test it $(GOLDEN)

torture: services ## ROUNDS random rounds of faults and load (SEED, FROM, MODE, PROFILE=release)
	@$(TORTURE)

torture-check: services ## the checker of `torture` finds a walpost that breaks its promises
	@$(CARGO) test --profile $(PROFILE) --locked --quiet --features sabotage --test torture -- check

soak: services ## steady load with reconnects for SOAK_SECONDS; memory and descriptors stay flat
	@$(TORTURE) soak

test-matrix: ## the integration tests over every Postgres version (POSTGRES_VERSIONS="14 18")
	@tests/services/install.sh debezium
	@tests/services/install.sh postgres 15 17 18 $(POSTGRES_VERSIONS)
	@failed=; for version in $(POSTGRES_VERSIONS); do \
	    echo "== Postgres $$version"; \
	    export WALPOST_TEST_PG_BIN="$$WALPOST_CACHE/postgres-$$version/bin"; \
	    $(CARGO) test --locked --test it -- --skip $(GOLDEN) && \
	        $(CARGO) test --locked --test it $(GOLDEN) || failed="$$failed $$version"; \
	done; \
	if [ -n "$$failed" ]; then echo "test-matrix: failed over Postgres$$failed" >&2; exit 1; fi

bench: services ## throughput, processor time, memory, latency; BENCH_DEBEZIUM=1 compares
	benches/run.sh

lint: ## format, clippy, documentation, and dependencies when cargo-deny is installed
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --document-private-items --quiet
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(MAKE) --no-print-directory deny; \
	    else echo "lint: cargo-deny is not installed, dependencies were not checked"; fi

deny: ## licences, sources and bans of all dependencies
	$(CARGO) deny --locked check bans licenses sources

fuzz: ## every fuzz target for FUZZ_SECONDS each; needs cargo-fuzz and a nightly toolchain
	@set -e; for target in $$($(CARGO) +nightly fuzz list); do \
	    echo "== fuzz $$target"; mkdir -p "fuzz/found/$$target"; \
	    $(CARGO) +nightly fuzz run "$$target" "fuzz/found/$$target" "fuzz/corpus/$$target" -- \
	        -max_total_time=$(FUZZ_SECONDS) -verbosity=0; \
	done

fuzz-keep: ## what `make fuzz` has found since, as few inputs as reach it, into fuzz/corpus
	@set -e; for target in $$($(CARGO) +nightly fuzz list); do \
	    mkdir -p "fuzz/found/$$target"; \
	    $(CARGO) +nightly fuzz run "$$target" "fuzz/corpus/$$target" "fuzz/found/$$target" -- -merge=1; \
	done; du -sh fuzz/corpus

sbom: ## what is linked into the binary, as CycloneDX: walpost.cdx.json
	@$(CARGO) cyclonedx --version 2>/dev/null | grep -qF "$(CYCLONEDX_VERSION)" || \
	    $(CARGO) install --quiet --locked cargo-cyclonedx --version "$(CYCLONEDX_VERSION)"
	$(CARGO) cyclonedx --quiet --format json --target x86_64-unknown-linux-gnu --override-filename walpost.cdx

services: ## installs what tests and demo need: build tools, Postgres, Java, Kafka, Debezium
	@tests/services/install.sh debezium
	@tests/services/install.sh postgres 17 18

clean: ## removes build results; downloads in $WALPOST_CACHE stay
	$(CARGO) clean
