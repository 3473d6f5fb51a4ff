#!/bin/sh
# Ends what `up` started once `up` itself is gone, even by kill -9. Only `up` holds
# the other end of standard input, where each line names the process groups that
# run now: "-123 -456". The file $1 says that `up` runs, which is then untrue.
trap '' INT TERM HUP
groups=
while read -r line; do groups=$line; done
# shellcheck disable=SC2086
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
rm -f "$1"
