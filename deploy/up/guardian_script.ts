import { END_ALL_FUNCTION } from "./end_all_function.ts";

/**
 * The guardian: a small POSIX shell that outlives the launcher by a few seconds.
 * Its standard input is a pipe whose other end only the launcher holds, so the
 * kernel tells it of the launcher's death, kill -9 included. Then it ends all
 * that the launcher started: first the services, then the servers that hold data,
 * each politely and after a while by force.
 *
 * Arguments: launcher's pid, a file to remove at the very end, the state file to
 * remove when the launcher died. Words on the pipe, one line each:
 *
 * | line | meaning |
 * | --- | --- |
 * | `+ service PID`, `+ store PID` | look after this process group |
 * | `- PID` | it has ended |
 * | `watch PID PARENT` | PID's parent must stay PARENT |
 * | `tick` | check what is watched |
 * | `quit` | all is stopped, leave |
 *
 * What is watched are the runners above the launcher (`npx`, `deno task`): killing
 * one of those reaches nobody else, so the launcher is then told to stop.
 * A tick costs no process: only shell builtins.
 */
export const GUARDIAN_SCRIPT = `
launcher=$1 mark=$2 state=$3
services=' ' stores=' ' watched=''
trap '' INT TERM HUP

without() {
  case "$1" in
    *" $2 "*) printf '%s' "\${1%% $2 *} \${1#* $2 }" ;;
    *) printf '%s' "$1" ;;
  esac
}

parent_changed() {
  if [ -d /proc/self ]; then
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 0
    set -- "$1" "$2" \${stat##*) }
    [ "$4" != "$2" ]
  else
    ! kill -s 0 "$2" 2>/dev/null
  fi
}

check() {
  for pair in $watched; do
    if parent_changed "\${pair%:*}" "\${pair#*:}"; then
      watched=''
      kill -s TERM "$launcher" 2>/dev/null
      return
    fi
  done
}

${END_ALL_FUNCTION}
while read -r word a b; do
  case "$word $a" in
    '+ service') services="$services$b " ;;
    '+ store') stores="$stores$b " ;;
    '- '*) services=$(without "$services" "$a") stores=$(without "$stores" "$a") ;;
    'watch '*) watched="$watched $a:$b" ;;
    'tick '*) check ;;
    'quit '*) rm -f "$mark"; exit 0 ;;
  esac
done

end_all 30 $services
end_all 100 $stores
rm -f "$state" "$mark"
`;
