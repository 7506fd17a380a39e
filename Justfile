# Every command a contributor types. `just` alone lists them.

default:
    @just --list

# Run the main job: the demonstration pool.
run:
    cargo run -- standalone

# All tests, test bed included. `just test FAST=1` is the quick loop, `LONG=1` adds the long forms.
test *VARS:
    tests/run {{VARS}}

# The chart and the Dockerfile alone (needs helm).
test-chart:
    tests/chart/check

# `run` against the current kubeconfig. Pod addresses are not reachable from a workstation.
run-dev *ARGS:
    hack/run-dev {{ARGS}}

# A real node of its own, the chart on it, Proxies from nothing to traffic and back (root). NAME: only tests with it in their name.
e2e NAME="":
    hack/e2e {{NAME}}

# Takes down what an interrupted `just e2e` has left.
e2e-clean:
    hack/e2e clean

# The life of one proxy on a real backend, by variables (hack/test-host says which). TYPE: gcp.
test-host TYPE:
    hack/test-host {{TYPE}}

# Only the provider's check there, which makes nothing.
test-host-check TYPE:
    hack/test-host {{TYPE}} check

# The chart as one file for kubectl: dist/install.yaml (needs helm).
bundle:
    hack/bundle

# The chart's package and the bundle in dist/; with IMAGE=REPOSITORY also the image for two architectures, pushed.
release:
    hack/release

# Format and lint.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Rewrite what is generated: CRDs and the OpenAPI document from the types, the table of the chart's values from its schema.
generate:
    UPDATE=1 cargo test -q -p egress-config crds
    UPDATE=1 cargo test -q -p egress-config chart
    UPDATE=1 cargo test -q -p egress-proxies-operator --lib openapi

# Benchmarks, as ratios in one run; rewrites the tables of docs/performance.md with `just bench write`.
bench *ARGS:
    cargo build --release --workspace
    cargo run --release -p egress-bench -- {{ARGS}}

# Licences, bans, advisories (needs cargo-deny).
deny:
    cargo deny check
