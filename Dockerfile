# syntax=docker/dockerfile:1
# The operator's image (IN-4): one static binary, the roots it verifies probes against, and nothing else.
#
#   docker build -t egress-proxies-operator:0.1.0 --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" .
#
# tests/chart/check holds it against a linter and its own rules.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ARG COMMIT=unknown
# glibc is linked in. The target must be named: without it the flag would also reach procedural macros, which cannot be static.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(rustc --print host-tuple)" \
    && EPO_BUILD_COMMIT="$COMMIT" RUSTFLAGS='-C target-feature=+crt-static' \
       cargo build --release --locked --target "$target" --bin egress-proxies-operator \
    && install -D "target/$target/release/egress-proxies-operator" /tree/egress-proxies-operator \
    && install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /tree/etc/ssl/certs/ca-certificates.crt

# No shell, no package manager, no user database: users are numbers.
FROM scratch
COPY --from=build /tree/ /
USER 65532:65532
# Discovery, health, metrics.
EXPOSE 8090 8081 8443
ENTRYPOINT ["/egress-proxies-operator"]
