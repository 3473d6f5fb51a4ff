#!/bin/sh
# Runs `deno task test:compose` where a Docker engine is, or can be started: builds
# the images without a registry, tests, and ends what it started. Exit code 77 and a
# reason when it cannot run here.
set -eu
cd "$(dirname "$0")/../.."

left_out() { echo "Left out: $*"; exit 77; }

command -v docker >/dev/null || left_out "there is no docker client here"
docker compose version >/dev/null 2>&1 || left_out "there is no docker compose (v2) here"
command -v deno >/dev/null || left_out "there is no deno on PATH to put into images"

engine=""
scratch=$(mktemp -d)
finish() {
  status=$?
  if [ -n "$engine" ]; then kill "$engine" && wait "$engine" || true; fi
  rm -rf "$scratch"
  exit "$status"
}
trap finish EXIT
trap "exit 124" TERM INT

if ! docker info >/dev/null 2>&1; then
  [ "$(id -u)" -eq 0 ] && command -v dockerd >/dev/null ||
    left_out "no Docker engine answers, and none can be started"
  export DOCKER_HOST="unix://$scratch/docker.sock"
  dockerd --data-root "$scratch/data" --exec-root "$scratch/exec" \
    --pidfile "$scratch/pid" -H "$DOCKER_HOST" >"$scratch/dockerd.log" 2>&1 &
  engine=$!
  tries=0
  until docker info >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 20 ] || ! kill -0 "$engine" 2>/dev/null; then
      left_out "dockerd does not start: $(tail -n 1 "$scratch/dockerd.log")"
    fi
    sleep 1
  done
fi
docker image inspect gateway-local/debian >/dev/null 2>&1 ||
  { [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null; } ||
  left_out "base images cannot be made: debootstrap and root are needed"

deploy/local_images/build.sh >"$scratch/build.log" 2>&1 || {
  tail -n 20 "$scratch/build.log"
  docker image inspect gateway-local/debian >/dev/null 2>&1 ||
    left_out "the base images cannot be made here"
  echo "The images do not build"
  exit 1
}
deno task test:compose
