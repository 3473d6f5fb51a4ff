/** Which texts are addresses that a model server would fetch. */
import type { ModelConfig } from "@gateway/shared/models/catalog";

/** How many characters of a text are read: enough to recognize an address. */
const READ_CHARS = 40;
const BLANK = /[\s\p{Cc}]/u;
const FETCHED = /^(?:(?:https?|file|ftp):|(?!data:)[a-z][a-z0-9+.-]*:\/\/)/i;
const FILE = /^file:/i;

/**
 * Whether a text is an address: of a file, or of anything else that is no `data:` URL;
 * null if it is none. Blanks and control characters in it make no difference, because
 * URL parsers of servers skip them, too.
 */
export function addressType(text: string): "file" | "remote" | null {
  const start = startOf(text);
  if (!FETCHED.test(start)) return null;
  return FILE.test(start) ? "file" : "remote";
}

/** Whether a text is an address that must not pass to the server of a model. */
export function mustNotPass(
  text: string,
  { fetches_urls: fetches }: Pick<ModelConfig, "fetches_urls">,
): boolean {
  const type = addressType(text);
  return type === "file" || (type === "remote" && !fetches);
}

/** The first characters of a text, without blanks. */
function startOf(text: string): string {
  let start = "";
  for (const character of text) {
    if (!BLANK.test(character)) start += character;
    if (start.length >= READ_CHARS) break;
  }
  return start;
}
