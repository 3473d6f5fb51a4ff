/**
 * Which version of the product this is. Its one place is the `version` of
 * `shared/deno.json`.
 */
import own from "./deno.json" with { type: "json" };

/** `0.2.0`, or `0.2.0+4a62422` in an image that was built with a `REVISION`. */
export const VERSION: string = own.version;

/** What `--version` prints. */
export function versionLine(program: string): string {
  return `${program} ${VERSION} (Deno ${Deno.version.deno})`;
}
