import { END_ALL_FUNCTION } from "./end_all_function.ts";
import type { ProcessKind } from "./guardian.ts";
import { parseRecord } from "./json.ts";
import { readFileIfAny, removeFile, writePrivateFile } from "./private_file.ts";

/** A process we started and how to know it again. */
export interface ChildNote {
  pid: number;
  kind: ProcessKind;
  /** Part of its command line that no other program has, for example its port. */
  marker: string;
}

/**
 * A list on disk of what runs. It is read only when both a launcher and its
 * guardian were killed: then the next launcher must stop what they left, because
 * two redis servers on one data directory would ruin it.
 */
export interface ChildList {
  add(note: ChildNote): void;
  remove(pid: number): void;
  /** Finishes the writing, and removes the file when nothing runs any more. */
  close(): Promise<void>;
}

/** Keeps the list in `file`, one JSON object per line. */
export function createChildList(file: string): ChildList {
  const notes = new Map<number, ChildNote>();
  let saved = Promise.resolve();
  let failure: unknown;
  const save = () => {
    saved = saved
      .then(() =>
        writePrivateFile(
          file,
          [...notes.values()].map((note) => `${JSON.stringify(note)}\n`)
            .join(""),
        )
      )
      .catch((error) => {
        failure ??= error;
      });
  };
  return {
    add(note) {
      notes.set(note.pid, note);
      save();
    },
    remove(pid) {
      notes.delete(pid);
      save();
    },
    async close() {
      await saved;
      if (failure !== undefined) throw failure;
      if (notes.size === 0) await removeFile(file);
    },
  };
}

/** $1: tenths of a second of patience; then pairs of pid and marker. Ends each that still is what the list says, and prints it. */
const SWEEP_SCRIPT = `
${END_ALL_FUNCTION}
tenths=$1
shift
ours=''
while [ $# -ge 2 ]; do
  if [ -r "/proc/$1/cmdline" ]; then
    command=$(tr '\\0' ' ' < "/proc/$1/cmdline")
  else
    command=$(ps -o args= -p "$1" 2>/dev/null)
  fi
  case "$command" in *"$2"*) ours="$ours $1" ;; esac
  shift 2
done
end_all "$tenths" $ours
for pid in $ours; do printf '%s\\n' "$pid"; done
`;

const PATIENCE_TENTHS: Record<ProcessKind, number> = {
  service: 30,
  store: 100,
};

/**
 * Stops what an earlier launcher left running, services before stores, and
 * answers with the pids. Only processes whose command line still holds the
 * noted marker are touched: the number may be another program's by now.
 */
export async function sweepLeftovers(file: string): Promise<number[]> {
  const notes = parseNotes(await readFileIfAny(file) ?? "");
  const swept: number[] = [];
  for (const kind of ["service", "store"] as const) {
    const some = notes.filter((note) => note.kind === kind);
    if (some.length === 0) continue;
    const output = await new Deno.Command("sh", {
      args: [
        "-c",
        SWEEP_SCRIPT,
        "sweep",
        String(PATIENCE_TENTHS[kind]),
        ...some.flatMap((note) => [String(note.pid), note.marker]),
      ],
      stdin: "null",
      stderr: "null",
    }).output();
    const text = new TextDecoder().decode(output.stdout).trim();
    if (text !== "") swept.push(...text.split("\n").map(Number));
  }
  await removeFile(file);
  return swept;
}

function parseNotes(text: string): ChildNote[] {
  return text.split("\n").flatMap((line) => {
    const { pid, kind, marker } = parseRecord(line) ?? {};
    if (typeof pid !== "number" || typeof marker !== "string") return [];
    if (marker === "" || (kind !== "service" && kind !== "store")) return [];
    return [{ pid, kind, marker }];
  });
}
