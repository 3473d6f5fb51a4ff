/** A process and the parent it must keep. */
export interface RunnerLink {
  pid: number;
  parent: number;
}

/** A process, its parent, and how that parent was started. */
export interface Ancestor extends RunnerLink {
  parentCommand: string;
}

const LEVELS_MAX = 8;

/** Prints `pid parent command-of-parent` for each level above `$1`. `ps` is not on every Linux, `/proc` not on macOS. */
const ANCESTORS_SCRIPT = `
pid=$1 left=${LEVELS_MAX}
while [ "$left" -gt 0 ]; do
  if [ -r "/proc/$pid/stat" ]; then
    read -r stat < "/proc/$pid/stat" || break
    set -- \${stat##*) }
    parent=$2
  else
    parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
  fi
  [ "\${parent:-0}" -gt 1 ] || break
  if [ -r "/proc/$parent/cmdline" ]; then
    command=$(tr '\\0' ' ' < "/proc/$parent/cmdline")
  else
    command=$(ps -o args= -p "$parent")
  fi
  printf '%s %s %s\\n' "$pid" "$parent" "$command"
  pid=$parent left=$((left - 1))
done
`;

/**
 * Finds the processes above the launcher that only exist to run it, such as
 * `npx`, its shell and `deno task`. The terminal's shell is not one of them: a
 * cluster started in the background may outlive it.
 */
export async function findRunners(launcherPid: number): Promise<RunnerLink[]> {
  const output = await new Deno.Command("sh", {
    args: ["-c", ANCESTORS_SCRIPT, "ancestors", String(launcherPid)],
    stdin: "null",
    stderr: "null",
  }).output();
  return chooseRunners(
    parseAncestors(new TextDecoder().decode(output.stdout)),
  );
}

function parseAncestors(text: string): Ancestor[] {
  return text.split("\n").flatMap((line) => {
    const [, pid, parent, parentCommand] = /^(\d+) (\d+) (.*)$/.exec(line) ??
      [];
    if (parentCommand === undefined) return [];
    return [{ pid: Number(pid), parent: Number(parent), parentCommand }];
  });
}

/** `deno task …`, also through node and as the title that npx gives itself. */
const RUNNER =
  /^(?:npm exec |(?:\S*\/)?(?:npx|node|bun|bunx|pnpm|yarn) .*|(?:\S*\/))?'?deno'? task /;
/** The shell that npx runs it with. */
const RUNNER_SHELL = /^\S*sh -c '?deno'? task /;

/**
 * The links up to the last runner of an unbroken row, nearest first. A shell
 * counts only below another runner: alone it is somebody's script.
 */
export function chooseRunners(ancestors: readonly Ancestor[]): RunnerLink[] {
  const links: RunnerLink[] = [];
  let count = 0;
  for (const { pid, parent, parentCommand } of ancestors) {
    const command = `${parentCommand} `;
    const isRunner = RUNNER.test(command);
    if (!isRunner && !RUNNER_SHELL.test(command)) break;
    links.push({ pid, parent });
    if (isRunner) count = links.length;
  }
  return links.slice(0, count);
}
