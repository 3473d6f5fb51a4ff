#!/bin/sh
# Starts one of three Redis Sentinels. When two of them agree that the master is down,
# they promote the replica with the most data. Further arguments go to the server.
#
# MASTER: "address port" of the first master.
set -eu
umask 077
data=${DATA_DIR:-/data}
secrets=${SECRETS_DIR:-/run/secrets}
file=$data/sentinel.conf
password() { cat "$secrets/$1_password"; }

# Keeps what it has learnt: the master, the others, and its own id, without which
# the others would count it twice.
touch "$file"
monitor=$(grep '^sentinel monitor ' "$file" || echo "sentinel monitor gateway $MASTER 2")
learnt=$(grep -E '^sentinel (myid|(config|leader|current)-epoch|known-(replica|sentinel)) ' "$file" || true)
cat >"$file" <<END
dir $data
user default off
user health on nopass resetkeys resetchannels -@all +ping
user peer on >$(password redis_sentinel) allkeys allchannels +@all
user lookup on >$(password redis_lookup) resetkeys resetchannels -@all +client|setname +sentinel|get-master-addr-by-name
sentinel sentinel-user peer
sentinel sentinel-pass $(password redis_sentinel)
$monitor
sentinel auth-user gateway sentinel
sentinel auth-pass gateway $(password redis_sentinel)
sentinel down-after-milliseconds gateway ${DOWN_AFTER_MS:-3000}
sentinel failover-timeout gateway ${FAILOVER_TIMEOUT_MS:-10000}
$learnt
END
exec redis-server "$file" --sentinel "$@"
