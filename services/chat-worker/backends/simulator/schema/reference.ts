import { isObject, member } from "./json.ts";

/**
 * The schema a local reference names, such as `#/$defs/node`. Undefined for one
 * that leads nowhere or out of the document: nothing is ever fetched.
 */
export function resolveReference(root: unknown, reference: string): unknown {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return undefined;
  let place: unknown = root;
  for (const step of reference.slice(2).split("/")) {
    const key = unescapeStep(step);
    if (Array.isArray(place)) place = place[Number(key)];
    else if (isObject(place)) place = member(place, key);
    else return undefined;
  }
  return place;
}

function unescapeStep(step: string): string {
  return percentDecoded(step).replaceAll("~1", "/").replaceAll("~0", "~");
}

function percentDecoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    // A stray percent sign stands for itself.
    return step;
  }
}
