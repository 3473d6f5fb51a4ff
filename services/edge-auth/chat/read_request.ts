/**
 * From the bytes of a body to a request that may be admitted. Refused bodies cost
 * the caller no quota, but they cost this process time, so that is counted.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { REFUSED_BODIES } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { parseChatRequest } from "@gateway/shared/openai/request";
import type { RefusedBodies } from "./refused_bodies.ts";
import type { KeyLookup } from "../keys/key_lookup.ts";
import type { Admission } from "../limits/admission.ts";
import { decodeJson } from "../http/json_body.ts";
import type { BodyBudget } from "../http/body_budget.ts";
import { type BodySource, readBody } from "../http/read_body.ts";
import { tooManyBadBodies } from "../limits/refusal.ts";

/** A request that was understood, and what it took to say it. */
export interface ReceivedChatRequest {
  request: ChatRequest;
  parseMs: number;
  /** The body's bytes no longer count as held. */
  release(): void;
}

/** A request whose body is unread. */
export interface UnreadChatRequest {
  principal: Principal;
  body: BodySource;
}

/** What reading takes. */
export interface ReadChatRequestDependencies {
  catalog: Catalog;
  keys: Pick<KeyLookup, "check">;
  admission: Pick<Admission, "checkRefused">;
  now: MonotonicNow;
  bodyBytesMax: number;
  bodyBudget: BodyBudget;
  deadlines: Deadlines;
  refusedBodies: RefusedBodies;
}

/**
 * Reads and checks the request. Null when the client left before its request was
 * whole. Rejects with an `ApiError` for one that cannot be understood; a caller
 * without a right to be here hears that first.
 */
export async function readChatRequest(
  unread: UnreadChatRequest,
  dependencies: ReadChatRequestDependencies,
): Promise<ReceivedChatRequest | null> {
  const { principal, body: source } = unread;
  const { now, refusedBodies, catalog } = dependencies;
  const { keyId } = principal;
  await dependencies.admission.checkRefused(principal);
  try {
    await waitAfterRefused(keyId, dependencies);
    const body = await readBody(source, {
      keyId,
      bytesMax: dependencies.bodyBytesMax,
      budget: dependencies.bodyBudget,
      deadlines: dependencies.deadlines,
      now,
      onTooManyPieces: (pieces) =>
        refusedBodies.charge(keyId, pieces * REFUSED_BODIES.pieceMs),
    });
    if (body === null) return null;
    const startedAtMs = now();
    try {
      // Others may have been read meanwhile.
      refuseAfterOthers(keyId, refusedBodies);
      const request = parseChatRequest(decodeJson(body.bytes), catalog);
      const parseMs = now() - startedAtMs;
      return { request, parseMs, release: body.release };
    } catch (error) {
      refusedBodies.charge(keyId, now() - startedAtMs);
      body.release();
      throw error;
    }
  } catch (error) {
    if (error instanceof ApiError) {
      await dependencies.keys.check(principal, "chat");
    }
    throw error;
  }
}

/** The rest is refused, but not sooner: whoever sends as fast as it is answered is slowed down. */
async function waitAfterRefused(
  keyId: string,
  { refusedBodies, deadlines, now }: ReadChatRequestDependencies,
): Promise<void> {
  const waitMs = Math.min(refusedBodies.waitMs(keyId), REFUSED_BODIES.waitMs);
  if (waitMs === 0) return;
  await new Promise<void>((resolve) =>
    deadlines.add({ expiresAtMs: now() + waitMs, expire: resolve })
  );
  refuseAfterOthers(keyId, refusedBodies);
}

function refuseAfterOthers(keyId: string, refused: RefusedBodies): void {
  const waitMs = refused.waitMs(keyId);
  if (waitMs > 0) throw tooManyBadBodies(waitMs, { connection: "close" });
}
