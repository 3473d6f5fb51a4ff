#!/bin/sh
# Builds every image of compose.yaml without a container registry: stand-ins for the
# base images from Debian's packages (debootstrap, as root) and the Deno of this
# machine, then the product's own images on them. Then start it with
#   docker compose --env-file deploy/local_images/env up -d --no-build
# Not for production: Debian's NATS and Redis are old.
set -eu
cd "$(dirname "$0")/../.."
export DOCKER_BUILDKIT=0
base=gateway-local/debian
# Empty: the default mirror of debootstrap.
mirror=${DEBIAN_MIRROR:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! docker image inspect "$base" >/dev/null 2>&1; then
  echo "Building $base from ${mirror:-Debian's packages}"
  debootstrap --variant=minbase \
    --include=ca-certificates,busybox,nats-server,redis-server,redis-tools,caddy \
    bookworm "$scratch/root" ${mirror:+"$mirror"} >"$scratch/log" 2>&1 ||
    { tail -n 20 "$scratch/log" >&2; exit 1; }
  rm -rf "$scratch"/root/var/cache/apt/* "$scratch"/root/var/lib/apt/lists/* \
    "$scratch"/root/usr/share/doc "$scratch"/root/usr/share/man
  tar -C "$scratch/root" -c . | docker import - "$base" >/dev/null
fi

mkdir "$scratch/context"
# Debian's Caddy is old. CADDY_BINARY names a newer one, for example from
#   go install github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9
caddy=${CADDY_BINARY:-}
if [ -n "$caddy" ]; then cp "$caddy" "$scratch/context/caddy"; else : >"$scratch/context/caddy"; fi
cp /etc/ssl/certs/ca-certificates.crt "$scratch/context"
# Where there is no Deno on PATH, that of npm, with which the product runs, too.
run_deno() { if command -v deno >/dev/null; then deno "$@"; else npx -y deno "$@"; fi; }
cp "$(run_deno eval 'console.log(Deno.execPath())')" "$scratch/context/deno"
for name in deno nats redis caddy; do
  docker build -q --build-arg "BASE=$base" --target "$name" -t "gateway-local/$name" \
    -f deploy/local_images/Dockerfile "$scratch/context"
done

# Packages come from npm's registry, so the build needs the network of the machine.
revision=$(git rev-parse --short HEAD 2>/dev/null || true)
for service in edge-auth chat-worker media-worker key-admin model-simulator; do
  docker build -q --network host --build-arg DENO_IMAGE=gateway-local/deno \
    --build-arg "REVISION=$revision" --target "$service" -t "gateway/$service:local" .
done
docker build -q --build-arg CADDY_IMAGE=gateway-local/caddy \
  -t gateway/proxy:local -f deploy/proxy/Dockerfile .
