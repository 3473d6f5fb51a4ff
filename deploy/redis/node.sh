#!/bin/sh
# Starts one of several Redis servers that Sentinel watches: a master and its
# replicas, any of which may change places. Further arguments go to the server.
#
# REPLICA_OF: "address port" of the first master, for those that begin as replicas.
set -eu
umask 077
data=${DATA_DIR:-/data}
secrets=${SECRETS_DIR:-/run/secrets}
file=$data/node.conf

# Who is master now is remembered over a restart: Sentinel lets the server rewrite
# this file. A replica that forgot would copy a master that is no longer one.
if [ -e "$file" ]; then
  role=$(grep '^replicaof ' "$file" || true)
else
  role=${REPLICA_OF:+replicaof $REPLICA_OF}
fi
# One replica must have been heard within three seconds, or no write is taken: a
# master that was cut off from the others stops about when they choose another, who
# wait as long (sentinel.sh). A change of a key is acknowledged only when that many
# replicas have it.
cat >"$file" <<END
include ${REDIS_CONFIG:-/usr/local/etc/redis.conf}
$role
masteruser replica
masterauth $(cat "$secrets/redis_replica_password")
min-replicas-to-write 1
min-replicas-max-lag 3
END
exec redis-server "$file" "$@"
