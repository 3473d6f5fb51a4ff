/** Finds the keys and the names of accounts for the ids in rows of lists. */
import type { KeyRecord } from "@gateway/shared/keys/record";
import type { ConsoleContext } from "../../context.ts";

/** The keys of these rows that still exist, by id. */
export async function keysOf(
  { var: { deps: { keys } } }: ConsoleContext,
  rows: readonly { keyId: string; ownerId: string }[],
): Promise<Map<string, KeyRecord>> {
  const ids = new Map(rows.map(({ keyId, ownerId }) => [keyId, ownerId]));
  const reads = [...ids].map(([keyId, ownerId]) => keys.get(ownerId, keyId));
  const found = await Promise.all(reads);
  return new Map(
    found.flatMap((key) => key === null ? [] : [[key.id, key]]),
  );
}

/** Returns the names of the accounts of these rows, by id. */
export async function namesOf(
  { var: { deps: { people } } }: ConsoleContext,
  rows: readonly { ownerId: string }[],
): Promise<Map<string, string>> {
  const ids = [...new Set(rows.map(({ ownerId }) => ownerId))];
  const found = ids.map(async (id) =>
    [id, await people.name(id) ?? ""] as const
  );
  return new Map(await Promise.all(found));
}
