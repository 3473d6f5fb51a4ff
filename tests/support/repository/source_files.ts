/** The source files of the repository. */
import { join } from "node:path/posix";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** The folders with code, from the root. */
export const SOURCE_FOLDERS = "bench deploy services shared tests".split(" ");

/** A file of the repository. */
export interface SourceFile {
  /** From the root. */
  path: string;
  text: string;
}

/** Everything in files below these folders whose path matches. */
export function readSources(
  folders: readonly string[],
  form: RegExp,
): SourceFile[] {
  return folders.flatMap((folder) =>
    [...Deno.readDirSync(join(ROOT, folder))].flatMap((entry) => {
      const path = `${folder}/${entry.name}`;
      if (entry.name === "node_modules") return [];
      if (entry.isDirectory) return readSources([path], form);
      return form.test(path) ? [{ path, text: readSource(path) }] : [];
    })
  );
}

/** The text of a file of the repository. */
export const readSource = (path: string): string =>
  Deno.readTextFileSync(join(ROOT, path));
