#!/usr/bin/env bash
# Brings docker-compose.yml up on a real Docker engine that can pull no image, checks it, and takes it down.
# Needs root, a running dockerd, docker-compose (1.29 or v2) and debootstrap. Base images are made from Debian packages.
#   tests/compose/run.sh [--keep]
# STANDIN_SETUP may name a script that gets the base image's root folder (to put a CA bundle or pip.conf into it).
set -euo pipefail
cd "$(dirname "$0")/../.."
compose=(docker-compose)
docker compose version >/dev/null 2>&1 && compose=(docker compose)
[ -n "${COMPOSE:-}" ] && read -ra compose <<<"$COMPOSE"
base=tabwise-standin/base:1
servers=tabwise-standin/servers:1

if ! docker image inspect "$base" >/dev/null 2>&1; then
    root=$(mktemp -d)
    echo "making the base image with debootstrap …"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" >/dev/null
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    [ -n "${STANDIN_SETUP:-}" ] && "$STANDIN_SETUP" "$root"
    tar -C "$root" -c . | docker import - "$base" >/dev/null
    rm -rf "$root"
fi
docker build --network host -q --build-arg BASE_IMAGE="$base" -t "$servers" -f tests/compose/servers.Dockerfile tests/compose

export TABWISE_BASE_IMAGE=$base TABWISE_POSTGRES_IMAGE=$servers TABWISE_REDIS_IMAGE=$servers \
    TABWISE_STORE_IMAGE=$servers TABWISE_PROMETHEUS_IMAGE=$servers
files=(-f docker-compose.yml -f tests/compose/override.yml)
parts=(postgres redis store migrate engine gateway ingest trainer publisher prometheus) # no stand-in for Grafana
"${compose[@]}" "${files[@]}" build "${parts[@]}"
[ "${1:-}" = --keep ] || trap '"${compose[@]}" "${files[@]}" down -v' EXIT
SECONDS=0
"${compose[@]}" "${files[@]}" up -d "${parts[@]}"
echo "started in $SECONDS s"
"${PYTHON:-.venv/bin/python}" -m tests.compose.verify "${compose[*]}" "${files[@]}"
