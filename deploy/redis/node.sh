#!/bin/sh
# Starts one of several Redis servers that Sentinel watches: a master and its
# replicas, which may change roles. Further arguments go to the server.
#
# REPLICA_OF: "address port" of the first master, for servers that start as replicas.
set -eu
umask 077
data=${DATA_DIR:-/data}
secrets=${SECRETS_DIR:-/run/secrets}
file=$data/node.conf

# The role survives a restart: Sentinel makes the server rewrite this file. Without
# it, a restarted replica would copy a former master.
if [ -e "$file" ]; then
  role=$(grep '^replicaof ' "$file" || true)
else
  role=${REPLICA_OF:+replicaof $REPLICA_OF}
fi
# A master accepts writes only if a replica has responded within three seconds. A
# master that is cut off from the others therefore stops at about the time when they
# elect another one (sentinel.sh). A change of a key is acknowledged only when that
# many replicas have it.
cat >"$file" <<END
include ${REDIS_CONFIG:-/usr/local/etc/redis.conf}
$role
masteruser replica
masterauth $(cat "$secrets/redis_replica_password")
min-replicas-to-write 1
min-replicas-max-lag 3
END
exec redis-server "$file" "$@"
