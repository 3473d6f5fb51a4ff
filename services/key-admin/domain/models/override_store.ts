/**
 * Overrides: changes of operators beside the list of models, in Redis and in their
 * audit logs.
 */
import {
  type Override,
  OVERRIDES_KEY,
  OVERRIDES_MAX,
  overrideSchema,
  type OverrideTarget,
  targetOf,
} from "@gateway/shared/backends/overrides";
import { z } from "zod";
import type { Actor, AuditLog } from "../audit/audit_log.ts";
import type { OwnerStore } from "../owners/owner_store.ts";
import { createPersist } from "../store/durability.ts";
import { asTexts, type StoreDeps } from "../store/redis.ts";

const noteSchema = z.object({
  by: z.string(),
  atMs: z.number(),
  reason: z.string(),
});

/** The author, time and reason of an override. */
export type OverrideNote = z.infer<typeof noteSchema>;
/** An override with its note. */
export type StoredOverride = Override & OverrideNote;

/** An override that cannot be made. The message is a sentence without its full stop. */
export class OverrideRefused extends Error {
  override name = "OverrideRefused";
}

/** Who makes an override, and the owner of the audit log that records it. */
export interface OverrideActor extends Actor {
  /** Null for the command line, whose changes are in the log of the first owner. */
  ownerId: string | null;
}

interface OverrideStoreDeps
  extends Pick<StoreDeps, "redis" | "writer" | "now"> {
  audit: Pick<AuditLog, "add">;
  owners: Pick<OwnerStore, "first">;
}

/**
 * The overrides. The last change of a target counts. A change is acknowledged when it
 * is on disk, as one of a key.
 */
export class OverrideStore {
  readonly #deps: OverrideStoreDeps;
  readonly #persist: () => Promise<void>;

  constructor(deps: OverrideStoreDeps) {
    this.#deps = deps;
    this.#persist = createPersist(deps.writer);
  }

  /** All overrides, the oldest first; what cannot be read is left out. */
  async list(): Promise<StoredOverride[]> {
    const reply = await this.#deps.redis.command(["HVALS", OVERRIDES_KEY]);
    return asTexts(reply).flatMap((text) => decode(text) ?? [])
      .sort((a, b) => a.atMs - b.atMs);
  }

  /** Makes an override, or replaces that of its target. */
  async set(
    override: Override,
    actor: OverrideActor,
    reason: string,
  ): Promise<void> {
    const { writer, now } = this.#deps;
    const target = targetOf(override);
    const others = (await this.list()).filter((each) =>
      targetOf(each) !== target
    );
    if (others.length >= OVERRIDES_MAX) {
      throw new OverrideRefused(
        `There are ${OVERRIDES_MAX} overrides already: undo some, or change the list of models`,
      );
    }
    const note: OverrideNote = { by: actor.by, atMs: now(), reason };
    const value = JSON.stringify({ ...override, ...note });
    await writer.command(["HSET", OVERRIDES_KEY, target, value]);
    const why = reason === "" ? "" : `: ${reason}`;
    await this.#record("model.changed", actor, describe(override) + why);
  }

  /** Undoes an override. False if there is none: somebody else was faster. */
  async remove(
    target: OverrideTarget,
    actor: OverrideActor,
  ): Promise<boolean> {
    const field = targetOf(target);
    const line = ["HDEL", OVERRIDES_KEY, field];
    const override = (await this.list()).find((each) =>
      targetOf(each) === field
    );
    if (await this.#deps.writer.command(line) === 0) return false;
    const what = override === undefined ? field : describe(override);
    await this.#record("model.change_undone", actor, what);
    return true;
  }

  async #record(
    action: "model.changed" | "model.change_undone",
    { ownerId, by, ip }: OverrideActor,
    detail: string,
  ): Promise<void> {
    const { audit, owners } = this.#deps;
    const whose = ownerId ?? await owners.first();
    await audit.add(whose, { action, by, ip, detail });
    await this.#persist();
  }
}

function decode(text: string): StoredOverride | null {
  try {
    const value: unknown = JSON.parse(text);
    return { ...overrideSchema.parse(value), ...noteSchema.parse(value) };
  } catch {
    // A newer version has written it: it is left out here, and kept in Redis.
    return null;
  }
}

/** Describes an override for people: `gpu-1 of qwen drained`. */
export function describe(override: Override): string {
  const { model } = override;
  if (override.what === "disable") return `${model} disabled`;
  const server = `${override.backend} of ${model}`;
  return override.what === "drain"
    ? `${server} drained`
    : `weight of ${server} set to ${override.weight}`;
}
