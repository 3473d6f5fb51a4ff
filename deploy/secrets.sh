#!/bin/sh
# Creates the secret files of compose.yaml that do not exist yet.
#
#   deploy/secrets.sh                     create what is missing
#   deploy/secrets.sh rotate redis-edge   add a new password; the old one stays valid
#   deploy/secrets.sh retire              remove the old passwords
#   deploy/secrets.sh model-key NAME      write the key of a model server, from the standard
#                                         input, for `api_key_env`; workers read it at once
#   deploy/secrets.sh load                let all running servers of Redis and NATS read them
#
# NATS has one password per user, so its old one becomes invalid when it reads the new one.
# SECRETS_DIR is their directory, by default deploy/secrets.
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
dir=${SECRETS_DIR:-$here/secrets}
names="nats-edge nats-worker nats-media nats-admin redis-edge redis-admin redis-operator"
# For compose.cluster.yaml only: replicas, sentinels, and services that ask these.
names="$names redis-replica redis-sentinel redis-lookup"

# Only the directory is private: containers read the files as users unknown here.
mkdir -p "$dir"
dir=$(cd "$dir" && chmod 700 . && pwd)

file_of() { printf '%s/%s_password' "$dir" "$(printf %s "$1" | tr - _)"; }
new_password() { od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'; }
sha256() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi |
    cut -d ' ' -f 1
}

# Writes in place, so that containers that mount the file see the change.
write() { cat >"$1" && chmod 444 "$1"; }
overwrite() { [ ! -e "$1" ] || chmod 644 "$1"; write "$1"; }

# "#hash", or "#hash #old-hash" while an old password is valid.
hashes_of() {
  file=$(file_of "$1")
  printf '#%s' "$(sha256 <"$file")"
  [ ! -e "$file.old" ] || printf ' #%s' "$(sha256 <"$file.old")"
}

upper() { printf %s "$1" | tr '[:lower:]' '[:upper:]'; }
render() {
  for user in edge worker media admin; do
    printf 'NATS_%s_PASSWORD: "%s"\n' "$(upper "$user")" "$(cat "$(file_of "nats-$user")")"
  done | overwrite "$dir/nats_passwords.conf"
  set --
  for user in edge admin operator replica sentinel; do
    set -- "$@" -e "s/#@REDIS_$(upper "$user")_SHA256@/$(hashes_of "redis-$user")/"
  done
  # Redis accepts neither comments nor a user on several lines.
  sed -e '/^#/d' -e ':join' -e '$!N' -e 's/\n  */ /' -e 't join' -e 'P' -e 'D' \
    "$here/redis/users.acl" | sed "$@" | overwrite "$dir/redis_users.acl"
}

case "${1:-make}" in
  make) ;;
  rotate)
    case " $names " in
      *" ${2:-} "*) ;;
      *) echo "Usage: deploy/secrets.sh rotate NAME, one of: $names" >&2; exit 2 ;;
    esac
    file=$(file_of "$2")
    case "$2" in redis-*) cat "$file" | overwrite "$file.old" ;; esac
    new_password | overwrite "$file"
    ;;
  model-key)
    case "${2:-}" in
      "" | [0-9]* | *[!A-Za-z0-9_]*)
        echo "Usage: deploy/secrets.sh model-key NAME, a name such as HOSTED_API_KEY" >&2; exit 2 ;;
    esac
    key=$(cat)
    : "${key:?The standard input has no key}"
    mkdir -p "$dir/model_keys" && chmod 755 "$dir/model_keys"
    # Renamed, so that a worker reads the old key or the new one.
    printf %s "$key" | overwrite "$dir/model_keys/.$2.new"
    mv "$dir/model_keys/.$2.new" "$dir/model_keys/$2"; exit ;;
  retire) rm -f "$dir"/*.old ;;
  load)
    # A server that has not loaded the operator's new password knows only the old one.
    operator=$(file_of redis-operator); cd "$here/.."
    [ ! -e "$operator.old" ] || operator=$operator.old
    servers=$(docker compose ps --services | grep -E '^(redis|nats)(-[0-9]+)?$' || :)
    for server in ${servers:?No server of Redis or NATS is running here}; do
      case $server in
        nats*) docker compose kill -s HUP "$server" ;;
        *) docker compose exec -T "$server" sh -c 'REDISCLI_AUTH=$(cat) redis-cli -e --user operator acl load' <"$operator" ;;
      esac
    done; exit ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
# Grafana reads its password at its first start only, so it cannot be rotated here.
for name in $names grafana-admin; do
  file=$(file_of "$name")
  [ -s "$file" ] || new_password | write "$file"
done
mkdir -p "$dir/model_keys" && chmod 755 "$dir/model_keys"
# The key of a model server is the operator's: empty until they enter it.
[ -e "$dir/upstream_api_key" ] || printf '' | write "$dir/upstream_api_key"
render
