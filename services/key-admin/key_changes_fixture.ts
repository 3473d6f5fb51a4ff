import { isDeepStrictEqual } from "node:util";
import {
  auditKey,
  hashKey,
  type KeyRecord,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { AuditAction } from "./domain/audit/audit_log.ts";
import {
  KeyRefused,
  type KeyStore,
  type Target,
} from "./domain/keys/key_store.ts";
import { asFields, asList } from "./domain/store/redis.ts";

/** Changes of every kind, and whether what was acknowledged is still there. */

const OWNER = "own_AAAAAAAAAAAAAAAAAAAA";
const ACTOR = { by: "ada@example.org", ip: "192.0.2.7" };
const GRACE_MS = 3_600_000;

/** The lifecycle of a key, in this order. */
const CHANGES = ["edit", "disable", "enable", "rotate", "delete"] as const;
type Change = typeof CHANGES[number];

/** Every kind of change to a key. */
export const CHANGE_KINDS = ["create", ...CHANGES] as const;
type ChangeKind = typeof CHANGE_KINDS[number];

/** The acknowledged state of a key. */
interface Known {
  key: KeyRecord;
  isDeleted: boolean;
  /** Its entries in the audit log, oldest first. */
  actions: readonly AuditAction[];
}

/** The acknowledged changes. A key whose change is not yet acknowledged is left out: either state is right. */
export interface Ledger {
  known: Map<string, Known>;
  counts: Record<ChangeKind, number>;
}

/** An empty ledger. */
export const emptyLedger = (): Ledger => ({
  known: new Map(),
  counts: { create: 0, edit: 0, disable: 0, enable: 0, rotate: 0, delete: 0 },
});

/** Takes keys through parts of their lifecycle until `isOver` or the server dies. */
export async function changeKeys(
  store: KeyStore,
  ledger: Ledger,
  isOver: () => boolean,
): Promise<void> {
  try {
    for (let length = 1; !isOver(); length++) {
      let key = await create(store, ledger);
      const rest = CHANGES.slice(0, length % CHANGE_KINDS.length);
      for (const kind of rest) key = await change(store, ledger, kind, key);
    }
  } catch (error) {
    // The server was killed: a change that it did not acknowledge does not count.
    if (error instanceof KeyRefused) throw error;
  }
}

async function create(store: KeyStore, ledger: Ledger): Promise<Known> {
  const made = await store.create({
    ownerId: OWNER,
    settings: {
      ...{ description: "A key", scopes: ["chat"], models: [] },
      ...{ limits: UNLIMITED, expiresAtMs: null },
    },
    actor: ACTOR,
  });
  ledger.counts.create++;
  return note(ledger, made.key, ["key.created"]);
}

async function change(
  store: KeyStore,
  ledger: Ledger,
  kind: Change,
  { key, actions }: Known,
): Promise<Known> {
  ledger.known.delete(key.id);
  const { id: keyId, version } = key;
  const target = { ownerId: OWNER, keyId, version, actor: ACTOR };
  const [after, action] = await send(store, ledger, kind, key, target);
  ledger.counts[kind]++;
  return note(ledger, after, [...actions, action]);
}

/** Makes the change. Returns the changed key and its entry in the log. */
async function send(
  store: KeyStore,
  ledger: Ledger,
  kind: Change,
  key: KeyRecord,
  target: Target,
): Promise<[after: KeyRecord, action: AuditAction]> {
  if (kind === "rotate") {
    const { key: next } = await store.rotate(target, GRACE_MS);
    note(ledger, next, ["key.created"]);
    const expiresAtMs = next.createdAtMs + GRACE_MS;
    return [{ ...key, version: key.version + 1, expiresAtMs }, "key.rotated"];
  }
  if (kind === "edit") {
    const settings = { description: `Renamed ${key.version}` };
    return [await store.edit(target, settings), "key.edited"];
  }
  return [await store[kind](target), `key.${kind}d`];
}

function note(
  { known }: Ledger,
  key: KeyRecord,
  actions: readonly AuditAction[],
): Known {
  const entry = { key, actions, isDeleted: actions.at(-1) === "key.deleted" };
  known.set(key.id, entry);
  return entry;
}

/**
 * Describes what differs from the acknowledged state: records, look-ups by hash,
 * audit entries. A look-up of a deleted key that is back is `harmless`: it refers
 * to no record, so admission answers 401.
 */
export async function findLost(
  redis: RedisLink,
  store: KeyStore,
  { known }: Ledger,
): Promise<{ lost: string[]; harmless: string[] }> {
  const lost: string[] = [];
  const harmless: string[] = [];
  const audited = await readAudit(redis);
  for (const [keyId, { key, isDeleted, actions }] of known) {
    const record = await store.get(OWNER, keyId);
    const wanted = isDeleted ? null : key;
    if (!isDeepStrictEqual(record, wanted)) lost.push(`record of ${keyId}`);
    const owner = await redis.command(["GET", hashKey(key.hash)]);
    if (isDeleted && owner !== null) harmless.push(`look-up of ${keyId}`);
    if (!isDeleted && owner !== `${keyId}:${OWNER}`) {
      lost.push(`look-up of ${keyId}`);
    }
    if (!isDeepStrictEqual(audited.get(keyId), actions)) {
      lost.push(`audit of ${keyId}: ${audited.get(keyId)}, not ${actions}`);
    }
  }
  return { lost, harmless };
}

/** The audit entries of every key, oldest first. */
async function readAudit(redis: RedisLink): Promise<Map<string, string[]>> {
  const entries = await redis.command(["XRANGE", auditKey(OWNER), "-", "+"], {
    deadlineMs: 10_000,
  });
  const audited = new Map<string, string[]>();
  for (const entry of asList(entries)) {
    const fields = asFields(asList(entry)[1]);
    const keyId = fields.key ?? "";
    const actions = audited.get(keyId) ?? [];
    audited.set(keyId, [...actions, fields.action ?? ""]);
  }
  return audited;
}
