import type { KeyRecord } from "@gateway/shared/keys/record";
import { change, get, remove } from "./change_key.ts";
import { changed } from "./key_changes.ts";
import { type KeyPage, type PageQuery, readPage } from "./key_page.ts";
import type {
  Changed,
  CreateOrder,
  KeyStoreDeps,
  Made,
  Target,
} from "./lifecycle.ts";
import { create, rotate } from "./make_key.ts";
import type { KeySettings } from "./settings.ts";

/**
 * The lifecycle of API keys. Each change is one atomic script over the owner's
 * slot and is acknowledged only when it is on disk, as far as the server offers
 * that (`store/durability.ts`).
 *
 * The look-up `hash:<sha256>` lies in another slot, so it cannot be part of that
 * script. Its writes are ordered such that a crash between leaves nothing
 * usable and loses nothing:
 * - making a key writes the look-up first. A crash then leaves a look-up to a
 *   record that does not exist, which admission answers with 401; the value was
 *   shown to nobody.
 * - deleting a key deletes the record first. From then on admission finds no
 *   record, whatever the look-up (or an edge's memory of it) says. Key ids are
 *   never used twice, so a look-up that was left behind stays dead.
 */
export interface KeyStore {
  create(order: CreateOrder): Promise<Made>;
  /** Null when the owner has no such key. */
  get(ownerId: string, keyId: string): Promise<KeyRecord | null>;
  /** One page of an owner's keys in one bounded call, see {@link PageQuery}. */
  list(ownerId: string, query: PageQuery): Promise<KeyPage>;
  edit(target: Target, settings: Partial<KeySettings>): Promise<Changed>;
  disable(target: Target): Promise<Changed>;
  enable(target: Target): Promise<Changed>;
  delete(target: Target): Promise<Changed>;
  /** Makes a key with the same settings; the old one ends after `graceMs`. Only an enabled key that is not over can be rotated. */
  rotate(target: Target, graceMs: number, once?: string): Promise<Made>;
}

/** The store on Redis, in the layout of `keys/record.ts`. */
export function createKeyStore(deps: KeyStoreDeps): KeyStore {
  return {
    create: (order) => create(deps, order),
    get: (ownerId, keyId) => get(deps.redis, ownerId, keyId),
    list: (ownerId, query) => readPage(deps.redis, ownerId, query),
    edit: (target, settings) =>
      change(deps, target, "key.edited", (key) => changed(key, settings)),
    disable: (target) =>
      change(
        deps,
        target,
        "key.disabled",
        (key) => changed(key, { state: "disabled" }),
      ),
    enable: (target) =>
      change(
        deps,
        target,
        "key.enabled",
        (key) => changed(key, { state: "enabled" }),
      ),
    delete: (target) => remove(deps, target),
    rotate: (target, graceMs, once) => rotate(deps, target, graceMs, once),
  };
}
