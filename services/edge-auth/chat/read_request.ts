/**
 * Reads, parses and checks the body of a chat request. A refused body does not count
 * against a key's limits, but it costs this process time, which is limited per key.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { REFUSED_BODIES } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { parseChatRequest } from "./request.ts";
import { remember } from "@gateway/shared/process/bounded_map";
import type { Admission } from "../limits/admission.ts";
import { tooManyBadBodies } from "../limits/refusal.ts";
import { decodeJson } from "../http/json_body.ts";
import { type BodyBounds, readBody } from "../http/read_body.ts";
import type { Exchange } from "../http/server.ts";

export interface ReadChatRequestDependencies extends BodyBounds {
  catalog: Catalog;
  admission: Pick<Admission, "checkRefused" | "modelsOf">;
  refusedBodies: RefusedBodies;
}

/**
 * Returns the request and how long parsing took; null if the client has disconnected.
 * Rejects with an `ApiError` for an invalid request; if the key may not make chat
 * requests at all, with the error for that instead.
 */
export async function readChatRequest(
  exchange: Pick<Exchange, "headers" | "openBody">,
  principal: Principal,
  dependencies: ReadChatRequestDependencies,
): Promise<{ request: ChatRequest; parseMs: number } | null> {
  const { now, refusedBodies, catalog, deadlines } = dependencies;
  const { keyId } = principal;
  await dependencies.admission.checkRefused(principal);
  try {
    await refusedBodies.wait(keyId, deadlines);
    const body = await readBody(
      exchange,
      keyId,
      dependencies,
      (pieces) => refusedBodies.charge(keyId, pieces * REFUSED_BODIES.pieceMs),
    );
    if (body === null) return null;
    const startedAtMs = now();
    try {
      // Other bodies of the key may have been refused in the meantime.
      refusedBodies.require(keyId);
      const request = parseChatRequest(decodeJson(body), catalog);
      return { request, parseMs: now() - startedAtMs };
    } catch (error) {
      refusedBodies.charge(keyId, now() - startedAtMs);
      throw error;
    }
  } catch (error) {
    if (error instanceof ApiError) {
      await dependencies.admission.modelsOf(principal, "chat");
    }
    throw error;
  }
}

const { shareOfCore, burstMs, keysMax } = REFUSED_BODIES;

/**
 * Limits the time that the refused bodies of a key may take: a fortieth of a core,
 * with bursts of 50 ms. An occasional bad body stays below that.
 */
export class RefusedBodies {
  readonly #now: MonotonicNow;
  /** When the time that each key has spent will be paid off. */
  readonly #paidAtMs = new Map<string, number>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Charges a key for a body that was refused after `tookMs` of work. */
  charge(keyId: string, tookMs: number): void {
    const paidAtMs = this.#now() + this.#owedMs(keyId) + tookMs / shareOfCore;
    remember(this.#paidAtMs, keyId, paidAtMs, keysMax);
  }

  /** Throws `rate_limit_exceeded` if no body of the key may be read now. */
  require(keyId: string): void {
    const waitMs = this.#waitMs(keyId);
    if (waitMs > 0) throw tooManyBadBodies(waitMs);
  }

  /** As `require`, but after a delay, which slows down a client that retries at once. */
  async wait(keyId: string, deadlines: Pick<Deadlines, "add">): Promise<void> {
    const waitMs = Math.min(this.#waitMs(keyId), REFUSED_BODIES.waitMs);
    if (waitMs === 0) return;
    const expiresAtMs = this.#now() + waitMs;
    await new Promise<void>((expire) => deadlines.add({ expiresAtMs, expire }));
    this.require(keyId);
  }

  #waitMs(keyId: string): number {
    return Math.max(0, Math.ceil(this.#owedMs(keyId) - burstMs / shareOfCore));
  }

  #owedMs(keyId: string): number {
    return Math.max(0, (this.#paidAtMs.get(keyId) ?? 0) - this.#now());
  }
}
