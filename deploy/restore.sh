#!/bin/sh
# Replaces the data of Redis with a copy that backup.sh made:
#   deploy/restore.sh redis-2026-11-20.rdb
# The file is copied and checked while Redis runs; then requests get 503 until the data
# is loaded. The previous data stays in the volume as appendonlydir.before until the
# next restore, and in use if this one fails.
set -eu
file=${1:?Usage: deploy/restore.sh FILE}
cd "$(dirname "$0")/.."
case $file in /*) ;; *) file=${INIT_CWD:-$OLDPWD}/$file ;; esac
[ -s "$file" ] || { echo "$file is missing or empty" >&2; exit 1; }

check='
set -eu
cd /data
rm -rf restoring && mkdir restoring
trap "[ -e /tmp/valid ] || rm -rf restoring" EXIT
cat >restoring/dump.rdb
redis-check-rdb restoring/dump.rdb >/tmp/check || { cat /tmp/check >&2; exit 1; }
touch /tmp/valid
'
# With appendonly on, Redis ignores an RDB file and starts empty. So a temporary
# server with appendonly off loads it and then writes the append-only files.
load='
set -eu
cd /data
redis-server --port 0 --unixsocket /tmp/redis.sock --dir restoring --save "" >/tmp/log &
trap "kill $! 2>/dev/null || true; rm -rf restoring" EXIT
redis() { redis-cli -s /tmp/redis.sock "$@"; }
wait_for() {
  tries=0
  until eval "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { echo "Timed out after two minutes: $1" >&2; cat /tmp/log >&2; exit 1; }
    sleep 0.2
  done
}
wait_for "redis ping 2>/dev/null | grep -q PONG"
# An old copy may lack the name of the store, without which edges answer 503.
redis set store "sto_$(cat /proc/sys/kernel/random/uuid)" NX >/dev/null
redis config set appendonly yes >/dev/null
wait_for "redis info persistence | grep -q aof_rewrite_in_progress:0"
redis info persistence | grep -q aof_last_bgrewrite_status:ok || { cat /tmp/log >&2; exit 1; }
echo "Restored $(redis dbsize) entries"
redis shutdown nosave || true
wait
rm -rf appendonlydir.before
[ ! -e appendonlydir ] || mv appendonlydir appendonlydir.before
mv restoring/appendonlydir .
'
in_redis() {
  docker compose run --rm -T --no-deps --entrypoint sh redis -c "$1"
}
in_redis "$check" <"$file" || {
  echo "$file cannot be restored; Redis still runs with its data" >&2
  exit 1
}
# All containers of Redis: one, or six with compose.cluster.yaml. Removing the files
# that hold their roles makes the restored server the master that the others copy.
stores=$(docker compose config --services | grep '^redis')
# Names of services, one word each.
# shellcheck disable=SC2086
docker compose stop $stores
# shellcheck disable=SC2086
trap 'docker compose start $stores' EXIT
in_redis "$load" </dev/null
for store in $stores; do
  docker compose run --rm -T --no-deps --entrypoint rm "$store" \
    -f /data/node.conf /data/sentinel.conf </dev/null
done
