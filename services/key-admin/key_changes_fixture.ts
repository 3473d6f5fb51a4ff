/** Makes changes of every kind, and finds acknowledged ones that were lost. */
import { isDeepStrictEqual } from "node:util";
import {
  auditKey,
  hashKey,
  type KeyRecord,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { KeyRefused } from "./domain/keys/key_refused.ts";
import type { KeyStore } from "./domain/keys/key_store.ts";
import type { KeySettings } from "./domain/keys/settings.ts";
import { asFields, asList } from "./domain/store/redis.ts";

/** The owner of the keys that tests change. */
export const OWNER = "own_AAAAAAAAAAAAAAAAAAAA";
/** The actor of the changes. */
export const ACTOR = { by: "ada@example.org", ip: "192.0.2.7" };
/** The settings of a new key. */
export const SETTINGS: KeySettings = {
  description: "Billing service",
  scopes: ["chat", "models"],
  models: [],
  networks: [],
  endUsers: null,
  priority: "normal",
  keepSeconds: 0,
  limits: { ...UNLIMITED, requestsPerMinute: 60 },
  expiresAtMs: null,
};
const GRACE_MS = 3_600_000;

/** The lifecycle of a key, in this order. */
const CHANGES = ["edit", "disable", "enable", "rotate", "delete"] as const;
type Change = typeof CHANGES[number];

/** A key, and its entries in the audit log, oldest first. */
interface Acknowledged {
  key: KeyRecord;
  actions: readonly string[];
}

/** The acknowledged changes. */
export class Ledger {
  /**
   * The keys by id. A key whose change is not yet acknowledged is left out: either
   * state is right.
   */
  readonly keys = new Map<string, Acknowledged>();
  /** How many changes of each kind were acknowledged. */
  readonly counts = {
    create: 0,
    edit: 0,
    disable: 0,
    enable: 0,
    rotate: 0,
    delete: 0,
  };
}

/** Takes keys through parts of their lifecycle until `isOver` or the server dies. */
export async function changeKeys(
  store: KeyStore,
  { keys, counts }: Ledger,
  isOver: () => boolean,
): Promise<void> {
  const note = (key: KeyRecord, actions: readonly string[]) =>
    keys.set(key.id, { key, actions });
  const input = { ownerId: OWNER, settings: SETTINGS, actor: ACTOR };
  try {
    for (let length = 1; !isOver(); length++) {
      let { key } = await store.create(input);
      let actions = ["key.created"];
      note(key, actions);
      counts.create++;
      for (const kind of CHANGES.slice(0, length % 6)) {
        keys.delete(key.id);
        const { next, newKey } = await change(store, kind, key);
        if (newKey !== undefined) note(newKey, ["key.created"]);
        key = next;
        actions = [...actions, `key.${kind.replace(/e?$/, "ed")}`];
        note(key, actions);
        counts[kind]++;
      }
    }
  } catch (error) {
    // The server was killed: a change that it has not acknowledged does not count.
    if (error instanceof KeyRefused) throw error;
  }
}

/** Makes the change. Returns the changed key, and the one that a rotation made. */
async function change(store: KeyStore, kind: Change, key: KeyRecord) {
  const { id: keyId, version } = key;
  const target = { ownerId: OWNER, keyId, version, actor: ACTOR };
  if (kind === "edit") {
    const settings = { description: `Renamed ${version}` };
    return { next: await store.edit(target, settings) };
  }
  if (kind !== "rotate") return { next: await store[kind](target) };
  const { key: newKey } = await store.rotate(target, GRACE_MS);
  const expiresAtMs = newKey.createdAtMs + GRACE_MS;
  const replacedBy = [newKey.id, newKey.hint] as const;
  const next = { ...key, version: version + 1, expiresAtMs, replacedBy };
  return { next, newKey };
}

/**
 * Describes what differs from the acknowledged state: records, look-ups by hash,
 * audit entries. A look-up of a deleted key that is back is `harmless`: it refers
 * to no record, so admission answers 401.
 */
export async function findLost(
  redis: RedisLink,
  store: KeyStore,
  { keys }: Ledger,
): Promise<{ lost: string[]; harmless: string[] }> {
  const lost: string[] = [];
  const harmless: string[] = [];
  const command = ["XRANGE", auditKey(OWNER), "-", "+"];
  const entries = await redis.command(command, { deadlineMs: 10_000 });
  const audited = Map.groupBy(
    asList(entries).map((entry) => asFields(asList(entry)[1])),
    ({ key }) => key,
  );
  for (const [keyId, { key, actions }] of keys) {
    const isDeleted = actions.includes("key.deleted");
    const record = await store.get(OWNER, keyId);
    if (!isDeepStrictEqual(record, isDeleted ? null : key)) {
      lost.push(`record of ${keyId}`);
    }
    const owner = await redis.command(["GET", hashKey(key.hash)]);
    if (isDeleted && owner !== null) harmless.push(`look-up of ${keyId}`);
    if (!isDeleted && owner !== `${keyId}:${OWNER}`) {
      lost.push(`look-up of ${keyId}`);
    }
    const logged = audited.get(keyId)?.map(({ action }) => action);
    if (!isDeepStrictEqual(logged, actions)) {
      lost.push(`audit of ${keyId}: ${logged}, not ${actions}`);
    }
  }
  return { lost, harmless };
}
