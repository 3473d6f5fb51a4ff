/**
 * The size of a forwarded request in tokens, estimated without a look at its meaning.
 */
import { utf8Length } from "../text/utf8.ts";
import { endOfString } from "../openai/json_body.ts";
import { BYTES_PER_TOKEN } from "../openai/tokens.ts";

/** An image of the usual size, or another medium: its bytes do not show its tokens. */
const TOKENS_PER_MEDIUM = 1_000;
/** A shorter text is counted as one, whatever it is. */
const MEDIUM_CHARS_MIN = 4_096;
/**
 * What shows that a long text is a medium: a long word, as prose and code have none.
 */
const BASE64 = /^(?:data:[^,"\\]{0,200},)?[A-Za-z0-9+/_-]{512}/;
const HEAD_CHARS = 800;

/**
 * The tokens of a body in JSON: one for every four bytes, names and brackets included,
 * and 1,000 for each image or other medium that it has in base64.
 */
export function bodyTokens(text: string): number {
  let bytes = utf8Length(text);
  let media = 0;
  if (text.length >= MEDIUM_CHARS_MIN) {
    for (let at = text.indexOf('"'); at >= 0;) {
      const end = endOfString(text, at + 1);
      const isMedium = end - at > MEDIUM_CHARS_MIN &&
        BASE64.test(text.slice(at + 1, at + 1 + HEAD_CHARS));
      if (isMedium) {
        media += 1;
        // Base64 is ASCII.
        bytes -= end - at;
      }
      at = text.indexOf('"', end + 1);
    }
  }
  return Math.ceil(bytes / BYTES_PER_TOKEN) + media * TOKENS_PER_MEDIUM;
}
