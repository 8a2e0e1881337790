# Thin names for the commands that people type most. What they do stands in .ci and in CONTRIBUTING.md.

.PHONY: all test race lint fuzz bench demo golden

all:
	.ci/run

test:
	go test ./...

race:
	.ci/run race

lint:
	.ci/run format vet staticcheck
	go test ./internal/tidy

# make fuzz FUZZTIME=10m
FUZZTIME ?= 1m
fuzz:
	.ci/fuzz $(FUZZTIME)

# make bench BENCH=Hop PKG=. COUNT=6 > old.txt
BENCH ?= .
PKG ?= ./...
COUNT ?= 6
bench:
	go test -run xxx -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG)

demo:
	go run ./cmd/kvloom attend

# Read the difference before you commit it.
golden:
	go test ./plan -run Golden -args -rewrite
	git diff --stat -- '*/testdata'
