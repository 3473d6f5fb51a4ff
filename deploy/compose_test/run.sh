#!/bin/sh
# Runs a test of the compose stack if a Docker engine runs or can be started: builds
# the images without a registry, tests, and stops what it started. If the test cannot
# run here, prints the reason and exits with 77.
#
#   deploy/compose_test/run.sh              test:compose
#   deploy/compose_test/run.sh redundant    test:redundant, of compose.cluster.yaml
#   deploy/compose_test/run.sh profiles     test:profiles; needs a registry, or its images
#
# TEST_REPORT names a file to which the test writes a JUnit report.
#
# Builds Compose v2 from Go's module proxy if there is Go but no Compose: Debian 12
# has only version 1, which cannot read these files.
set -eu
cd "$(dirname "$0")/../.."
COMPOSE_VERSION=v2.40.3
COMPOSE_BUILD_SECONDS_MAX=300
COMPOSE_TEST_PROJECT=gateway-test-$$
export COMPOSE_TEST_PROJECT
test=${1:-compose}

left_out() { echo "Left out: $*"; exit 77; }

# An engine that ended leaves a network namespace mounted; a killed one, all its mounts.
unmount_below() {
  awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
    while read -r place; do umount "$place" || umount --lazy "$place"; done
}

engine=""
scratch=$(mktemp -d)
finish() {
  status=$?
  # The exit code is that of the test, even if cleaning up fails.
  set +e
  # The test stops its stack itself, unless it was interrupted.
  if [ -n "$(docker ps -aq --filter "label=com.docker.compose.project=$COMPOSE_TEST_PROJECT" 2>/dev/null)" ]; then
    docker compose -p "$COMPOSE_TEST_PROJECT" down --volumes --timeout 1 >/dev/null 2>&1
  fi
  if [ -n "$engine" ]; then kill "$engine" && wait "$engine"; fi
  unmount_below "$scratch"
  rm -rf "$scratch" || echo "Left behind: $scratch"
  exit "$status"
}
trap finish EXIT
trap "exit 124" TERM INT

# Makes `docker compose` run this program.
use_compose() {
  mkdir -p "$scratch/docker/cli-plugins"
  ln -sf "$1" "$scratch/docker/cli-plugins/docker-compose"
  export DOCKER_CONFIG="$scratch/docker"
}

# Its module has exclusions, which `go install` rejects.
# shellcheck disable=SC2016
BUILD_COMPOSE='
  dir=$(go mod download -json "github.com/docker/compose/v2@$1" | sed -n "s/^.*\"Dir\": \"\(.*\)\",*$/\1/p")
  cd "$dir" && go build -o "$2.part" ./cmd && mv "$2.part" "$2"
'

find_compose() {
  if docker compose version >/dev/null 2>&1; then return; fi
  case $(docker-compose version --short 2>/dev/null || true) in
    2.* | v2.*) use_compose "$(command -v docker-compose)"; return ;;
  esac
  built=${XDG_CACHE_HOME:-$HOME/.cache}/gateway/docker-compose-$COMPOSE_VERSION
  if [ ! -x "$built" ]; then
    command -v go >/dev/null || left_out "docker compose (v2) is missing, and Go to build it"
    echo "Building docker compose $COMPOSE_VERSION"
    mkdir -p "$(dirname "$built")"
    timeout -k 5 "$COMPOSE_BUILD_SECONDS_MAX" sh -c "$BUILD_COMPOSE" - "$COMPOSE_VERSION" "$built" \
      >"$scratch/go.log" 2>&1 ||
      left_out "docker compose cannot be built in $COMPOSE_BUILD_SECONDS_MAX seconds: $(tail -n 1 "$scratch/go.log")"
  fi
  use_compose "$built"
}

start_engine() {
  if docker info >/dev/null 2>&1; then return; fi
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
}

command -v docker >/dev/null || left_out "the docker client is missing"
command -v deno >/dev/null || command -v npx >/dev/null ||
  left_out "neither deno nor npx is on PATH, so no Deno can be copied into the images"
start_engine
find_compose
docker image inspect gateway-local/debian >/dev/null 2>&1 ||
  { [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null; } ||
  left_out "the base images cannot be built: that needs debootstrap and root"

deploy/local_images/build.sh >"$scratch/build.log" 2>&1 || {
  tail -n 20 "$scratch/build.log"
  docker image inspect gateway-local/debian >/dev/null 2>&1 ||
    left_out "the base images cannot be built here"
  echo "The images cannot be built"
  exit 1
}
run_deno() { if command -v deno >/dev/null; then deno "$@"; else npx -y deno "$@"; fi; }
run_deno task "test:$test" ${TEST_REPORT:+"--junit-path=$TEST_REPORT"}
