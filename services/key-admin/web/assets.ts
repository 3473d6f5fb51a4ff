import { createHash } from "node:crypto";

/** The console's own files. Their paths change with their content, so browsers may keep them for ever. */
export interface Assets {
  stylesheet: string;
  script: string;
  icon: string;
  files: ReadonlyMap<string, { body: string; type: string }>;
}

const FILES = {
  stylesheet: ["console.css", "text/css; charset=utf-8"],
  script: ["console.js", "text/javascript; charset=utf-8"],
  icon: ["icon.svg", "image/svg+xml; charset=utf-8"],
} as const;

/** Of a digest: enough that no two versions of a file share a path. */
const VERSION_CHARS = 12;

/** Reads the files that lie beside this module. */
export async function readAssets(): Promise<Assets> {
  const files = new Map<string, { body: string; type: string }>();
  const add = async ([name, type]: readonly [string, string]) => {
    const body = await Deno.readTextFile(
      new URL(`assets/${name}`, import.meta.url),
    );
    const version = createHash("sha256").update(body).digest("hex");
    const path = `/assets/${version.slice(0, VERSION_CHARS)}/${name}`;
    files.set(path, { body, type });
    return path;
  };
  return {
    stylesheet: await add(FILES.stylesheet),
    script: await add(FILES.script),
    icon: await add(FILES.icon),
    files,
  };
}
