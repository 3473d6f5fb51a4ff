/**
 * The console's own files: read once at the start, and served under paths that change
 * with their content, so that browsers may keep them forever.
 */

import { createHash } from "node:crypto";

/** A file that is served. */
interface Asset {
  body: string;
  /** The media type with its charset. */
  type: string;
}

/** The paths of the console's files, and the files by their paths. */
export interface Assets {
  /** The one style sheet of all pages. */
  stylesheet: string;
  /** The script of all pages. */
  script: string;
  /** The script of the page "Try it", a module. */
  tryScript: string;
  icon: string;
  files: ReadonlyMap<string, Asset>;
}

/** The script of "Try it", and the modules that it imports. */
const TRY_SCRIPTS = ["try.js", "try_events.js", "try_notes.js"];

/** The parts of the style sheet. A later one overrides those before it. */
const STYLES = ["elements", "controls", "words", "layout", "pages", "tables"]
  .map((name) => `console/${name}.css`);

const VERSION_CHARS = 12;

/** Reads the files beside this module. Throws if one of them is missing. */
export async function readAssets(): Promise<Assets> {
  const files = new Map<string, Asset>();
  /** Adds a file that is made of these parts. Returns its path. */
  const add = async (name: string, mediaType: string, parts = [name]) => {
    const body = (await Promise.all(parts.map(readPart))).join("\n");
    const path = `${folderOf(body)}/${name}`;
    files.set(path, { body, type: `${mediaType}; charset=utf-8` });
    return path;
  };
  /** Adds modules that import each other. Returns the path of the first one. */
  const addModules = async ([first = "", ...others]: readonly string[]) => {
    const names = [first, ...others];
    const bodies = await Promise.all(names.map(readPart));
    const folder = folderOf(bodies.join("\n"));
    const type = "text/javascript; charset=utf-8";
    bodies.forEach((body, at) => {
      files.set(`${folder}/${names[at]}`, { body, type });
    });
    return `${folder}/${first}`;
  };
  return {
    stylesheet: await add("console.css", "text/css", STYLES),
    script: await add("console.js", "text/javascript"),
    tryScript: await addModules(TRY_SCRIPTS),
    icon: await add("icon.svg", "image/svg+xml"),
    files,
  };
}

function folderOf(body: string): string {
  const digest = createHash("sha256").update(body).digest("hex");
  return `/assets/${digest.slice(0, VERSION_CHARS)}`;
}

const readPart = (name: string): Promise<string> =>
  Deno.readTextFile(new URL(`assets/${name}`, import.meta.url));
