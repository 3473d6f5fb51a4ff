/**
 * POSIX shell: `end_all TENTHS PID…` ends process groups, politely at first and by
 * force after so many tenths of a second. Returns when none is left, or right
 * after the force.
 *
 * A group counts as ended when its leader is a zombie, which it stays until its
 * new parent has looked: in some containers that takes seconds.
 */
export const END_ALL_FUNCTION = `
signal_all() {
  name=$1
  shift
  for pid in "$@"; do kill -s "$name" -- "-$pid" 2>/dev/null; done
}

is_alive() {
  if [ -d /proc/self ]; then
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 1
    case "\${stat##*) }" in Z*) return 1 ;; esac
  else
    kill -s 0 "$1" 2>/dev/null
  fi
}

any_alive() {
  for pid in "$@"; do is_alive "$pid" && return 0; done
  return 1
}

end_all() {
  tenths=$1
  shift
  signal_all TERM "$@"
  signal_all CONT "$@"
  while [ "$tenths" -gt 0 ] && any_alive "$@"; do
    sleep 0.1
    tenths=$((tenths - 1))
  done
  signal_all KILL "$@"
}
`;
