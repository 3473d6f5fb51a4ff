/** What source files import, read from their text. */
import { dirname, join } from "node:path/posix";
import { readSource, type SourceFile } from "./source_files.ts";

const IMPORT = /^(?:import|export)\b[\w\s{},*$]*?\bfrom\s*["']([^"']+)["']/gm;
const BARE_IMPORT = /^import\s*["']([^"']+)["']/gm;
const DYNAMIC_IMPORT = /\bimport\(\s*["']([^"']+)["']/g;

/** What a file imports, as it is written; imports of types too. */
export function importsOf({ text }: SourceFile): string[] {
  return [IMPORT, BARE_IMPORT, DYNAMIC_IMPORT].flatMap((form) =>
    [...text.matchAll(form)].map((match) => match[1] ?? "")
  );
}

/**
 * The target of an import: a path from the root (without its extension if it is an
 * export of `shared`), or the name of a package.
 */
export function targetOf({ path }: SourceFile, specifier: string): string {
  const [, room, rest] = /^@gateway\/([^/]+)\/(.*)/.exec(specifier) ?? [];
  if (room !== undefined) {
    return `${room === "shared" ? room : `services/${room}`}/${rest}`;
  }
  if (!specifier.startsWith(".")) return specifier;
  return join(dirname(path), specifier);
}

/** The targets of all imports of a file. */
export function targetsOf(file: SourceFile): string[] {
  return importsOf(file).map((specifier) => targetOf(file, specifier));
}

/** The files of what `shared` exports, by their targets. */
const EXPORTS = new Map<string, string>(
  Object.entries<string>(JSON.parse(readSource("shared/deno.json")).exports)
    .map(([name, path]) => [join("shared", name), join("shared", path)]),
);

/** The paths of all files of the repository that a file imports. */
export function filesImportedBy(file: SourceFile): string[] {
  return targetsOf(file).map((target) => EXPORTS.get(target) ?? target);
}
