/**
 * Finds members that stand twice in one object of a settings file. `JSON.parse` keeps
 * the last of them without a word, so that a line which an operator reads would not
 * count.
 */
import { endOfString } from "../openai/json_body.ts";

/** More would not help to mend the file. */
const NAMED_MAX = 20;
/** What follows the name of a member. */
const COLON = /\s*:/y;

/**
 * What is repeated in a text of valid JSON, with the line of each repetition: at most
 * 20 of them.
 */
export function repeatedMembers(text: string): string[] {
  const found: string[] = [];
  /** The names in each object that is open; null for a list. */
  const open: (Set<string> | null)[] = [];
  let line = 1;
  for (let at = 0; at < text.length && found.length < NAMED_MAX; at++) {
    switch (text[at]) {
      case "\n":
        line++;
        break;
      case "{":
        open.push(new Set());
        break;
      case "[":
        open.push(null);
        break;
      case "}":
      case "]":
        open.pop();
        break;
      case '"': {
        const end = endOfString(text, at + 1);
        const names = open.at(-1);
        COLON.lastIndex = end + 1;
        if (names && COLON.test(text)) {
          const name: string = JSON.parse(text.slice(at, end + 1));
          if (names.has(name)) {
            found.push(`line ${line}: "${name}" is there twice`);
          }
          names.add(name);
        }
        at = end;
      }
    }
  }
  return found;
}
