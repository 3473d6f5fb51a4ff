#!/bin/sh
# Writes a consistent copy of Redis (keys, owners, limits, usage) to a file, while
# everything runs:
#   deploy/backup.sh redis-2026-11-20.rdb
# The file holds hashes of keys and passwords, never the values; keep it private.
set -eu
file=${1:?Usage: deploy/backup.sh FILE}
umask 077
cd "$(dirname "$0")/.."
case $file in /*) ;; *) file=${INIT_CWD:-$OLDPWD}/$file ;; esac
# What a full disk left of a copy would stop Redis.
docker compose exec -T redis sh -c '
  trap "rm -f /data/backup.rdb" EXIT
  REDISCLI_AUTH=$(cat /run/secrets/redis_operator_password) &&
    export REDISCLI_AUTH &&
    redis-cli --user operator --rdb /data/backup.rdb >&2 &&
    redis-check-rdb /data/backup.rdb >&2 &&
    cat /data/backup.rdb' >"$file.part" 2>"$file.log" ||
  { cat "$file.log" >&2; rm -f "$file.part" "$file.log"; exit 1; }
rm -f "$file.log"
mv "$file.part" "$file"
echo "Wrote $file ($(wc -c <"$file" | tr -d ' ') bytes)"
