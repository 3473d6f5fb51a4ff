/** Which end user of its key a request is for. */
import { createHash } from "node:crypto";
import type { Principal } from "@gateway/shared/keys/record";
import { remember } from "@gateway/shared/process/maps";

/** Reads the end user of a request from a source; empty: it names none. */
export type EndUserNames = (source: string) => string;

/** Remembers the source that tells the end users of each key apart, from the script. */
export class EndUserSources {
  readonly #sources = new Map<string, string>();

  /** The source of a key; empty: none is known. */
  sourceOf({ keyId }: Principal): string {
    return this.#sources.get(keyId) ?? "";
  }

  /** Keeps the source that the record of a key has; empty: none. */
  keep({ keyId }: Principal, source: string): void {
    if (source === "") this.#sources.delete(keyId);
    else {
      remember(this.#sources, { key: keyId, value: source, sizeMax: KEYS_MAX });
    }
  }
}

/** Keys whose source an edge remembers; for others, it asks twice. */
const KEYS_MAX = 10_000;
const DIGITS = 16;

/**
 * The id of the end user of a request, for the names of keys in Redis: 16 hexadecimal
 * digits. Requests that name none share one. Empty without a source.
 */
export function endUserId(
  source: string,
  names: EndUserNames | undefined,
): string {
  if (source === "") return "";
  const name = names?.(source) ?? "";
  return createHash("sha256").update(`${source}\n${name}`).digest("hex")
    .slice(0, DIGITS);
}
