#!/bin/sh
# Ends the processes of `up` when `up` itself has ended, even by kill -9. Only `up`
# holds the other end of standard input, where each line lists the process groups
# that run now: "-123 -456". Also removes the file $1, which says that `up` runs.
trap '' INT TERM HUP
groups=
while read -r line; do groups=$line; done
# shellcheck disable=SC2086
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
rm -f "$1"
