# bash with pipefail: a failing command must fail its target, also at the left of a pipe.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO           ?= go
PKGS         ?= ./...
VERSION      ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
ARGS         ?=
TEST_FLAGS   ?=
TEST_TIMEOUT ?= 10m
RACE_PKGS    ?= ./...
RACE_FLAGS   ?=
# The race detector makes code 5 to 10 times slower.
RACE_TIMEOUT ?= 20m
FUZZTIME     ?= 20s

CONFORMANCE_PKGS ?= ./aggregate/session ./aggregate/release ./service

# Tools have their own module, so that their dependencies stay out of ours.
tool = $(GO) tool -modfile=$(CURDIR)/tools/go.mod

.PHONY: help
help: ## print the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build ./bin/forge-es
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o bin/forge-es ./cmd/forge-es

.PHONY: run
run: build ## build and serve (ARGS="--data DIR ...")
	./bin/forge-es serve $(ARGS)

.PHONY: test
test: ## run the tests (PKGS, TEST_FLAGS)
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $(PKGS)

.PHONY: race
race: ## run the tests under the race detector (RACE_PKGS, RACE_FLAGS); needs a C compiler
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout $(RACE_TIMEOUT) $(RACE_FLAGS) $(RACE_PKGS)

# Generated templates are laid out by their generator.
.PHONY: lint
lint: ## vet, staticcheck, gofumpt (PKGS)
	$(GO) vet -tags e2e $(PKGS)
	$(tool) staticcheck -tags e2e $(PKGS)
	@if [ -f bench/go.mod ]; then \
		echo 'vet and staticcheck in bench'; \
		cd bench; $(GO) vet ./...; $(tool) staticcheck ./...; \
	fi
	@unformatted=$$(git ls-files -z -- '*.go' ':!*_templ.go' | xargs -0 -r $(tool) gofumpt -l); \
	if [ -n "$$unformatted" ]; then \
		printf 'not formatted with gofumpt:\n%s\n' "$$unformatted"; exit 1; \
	fi

# `go test` fuzzes one function at a time, and names match as patterns.
.PHONY: fuzz
fuzz: ## fuzz every Fuzz function for FUZZTIME (default 20s) each
	@targets=$$($(GO) test -list '^Fuzz' $(PKGS) | awk ' \
		/^Fuzz/ { names[n++] = $$1 } \
		$$1 == "ok" { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }'); \
	if [ -z "$$targets" ]; then echo 'no Fuzz function found'; exit 0; fi; \
	while read -r pkg name; do \
		echo "$$pkg $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
	done <<<"$$targets"

.PHONY: torture
torture: ## run the long variants of the torture tests
	FORGE_TORTURE=1 $(GO) test $(PKGS) -run Torture -count=1 -timeout 60m

.PHONY: e2e
e2e: ## try the program with the real nats command, which is built once
	$(GO) test -tags e2e ./e2e/... -count=1 -timeout $(TEST_TIMEOUT)

.PHONY: bench
bench: ## run the benchmarks beside peers (ARGS)
	cd bench && $(GO) run . $(ARGS)

.PHONY: conformance
conformance: ## run the conformance vectors (CONFORMANCE_PKGS)
	CONFORMANCE_DIR=$(CURDIR)/testdata/conformance $(GO) test $(CONFORMANCE_PKGS) -run Conformance -count=1 -v | tail -5

.PHONY: cover
cover: ## measure coverage over all packages (coverage.out, coverage.html)
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) -coverpkg=./... -coverprofile=coverage.out $(PKGS)
	$(GO) tool cover -html=coverage.out -o coverage.html
	@$(GO) tool cover -func=coverage.out | tail -1

.PHONY: generate
generate: ## run go generate
	$(GO) generate $(PKGS)

.PHONY: clean
clean: ## remove what the targets above leave behind
	rm -rf bin coverage.out coverage.html
