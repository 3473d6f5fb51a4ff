/** The table "Rooms" of ARCHITECTURE.md: what each room may import. */
import { readSource } from "./source_files.ts";

/** A row of the table. */
export interface Room {
  /** A folder or a file, from the root; with `*` at its end, all that begins so. */
  readonly path: string;
  /** Rooms and packages; `everything` allows all. */
  readonly mayImport: readonly string[];
}

const ROW = /^\| `([^`]+)` +\|[^|]*\|([^|]*)\|$/gm;

/** Reads the table. In its last column, each room and package stands in backticks. */
export function readRooms(): Room[] {
  const text = readSource("ARCHITECTURE.md");
  const [, section = ""] = text.split("\n## Rooms\n");
  const [table = ""] = section.split("\n## ");
  return [...table.matchAll(ROW)].map(([, path = "", cell = ""]) => ({
    path,
    mayImport: cell.trim() === "everything"
      ? ["everything"]
      : [...cell.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name),
  }));
}

/**
 * The room of a file or of an import's target: of those that fit, the most specific.
 */
export function roomOf(
  rooms: readonly Room[],
  path: string,
): Room | undefined {
  return rooms.filter((room) => isIn(room.path, path))
    .toSorted((a, b) => b.path.length - a.path.length)[0];
}

/** Whether a room may import a target outside of itself. */
export function mayImport({ mayImport }: Room, target: string): boolean {
  return mayImport.includes("everything") || target.startsWith("node:") ||
    mayImport.some((name) => isIn(name, target));
}

/** What a row allows, although none of these targets of its room is in it. */
export function unusedIn(
  { mayImport }: Room,
  targets: readonly string[],
): string[] {
  return mayImport.filter((name) =>
    name !== "everything" && !targets.some((target) => isIn(name, target))
  );
}

function isIn(room: string, path: string): boolean {
  if (room.endsWith("*")) return path.startsWith(room.slice(0, -1));
  const plain = room.replace(/\.ts$/, "");
  return path === room || path === plain || path.startsWith(`${room}/`);
}
