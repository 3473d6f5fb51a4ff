/**
 * From the bytes of a body to a request that may be admitted. Refused bodies cost
 * the caller no quota, but they cost this process time, so they are counted.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { parseChatRequest } from "@gateway/shared/openai/request";
import {
  badBodyWeight,
  type FailureLimiter,
  SUSPECT_BODY_WEIGHT,
} from "./auth_failures.ts";
import type { KeyLookup } from "./keys/key_lookup.ts";
import { decodeJson } from "./json_guard.ts";
import type { ParseLane } from "./parse_lane.ts";
import type { BodyBudget } from "./http/body_budget.ts";
import { type BodySource, readBody } from "./http/read_body.ts";
import { tooManyBadBodies } from "./limits/refusal.ts";

/** A request that was understood, and what it took to say it. */
export interface ReceivedChatRequest {
  request: ChatRequest;
  bodyBytes: number;
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
  now: MonotonicNow;
  bodyBytesMax: number;
  bodyBudget: BodyBudget;
  deadlines: Deadlines;
  /** Refused bodies per key, by weight. */
  badBodies: FailureLimiter;
  /** Where the bodies of keys with many bad ones are parsed. */
  parseLane: ParseLane;
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
  const { principal } = unread;
  const { badBodies } = dependencies;
  try {
    refuseAfterBadBodies(principal, badBodies);
    const body = await readBody(unread.body, {
      keyId: principal.keyId,
      bytesMax: dependencies.bodyBytesMax,
      budget: dependencies.bodyBudget,
      deadlines: dependencies.deadlines,
      now: dependencies.now,
      onCost: (bytes) => badBodies.fail(principal.keyId, badBodyWeight(bytes)),
    });
    if (body === null) return null;
    const { bytes, release } = body;
    try {
      const request = await parseBody(bytes, principal, dependencies);
      return { request, bodyBytes: bytes.byteLength, release };
    } catch (error) {
      release();
      throw error;
    }
  } catch (error) {
    if (error instanceof ApiError) {
      await dependencies.keys.check(unread.principal, "chat");
    }
    throw error;
  }
}

/** Asks again whether the key has had too many bad bodies: others may have been read meanwhile. */
function parseBody(
  bytes: Uint8Array,
  principal: Principal,
  { catalog, badBodies, parseLane }: ReadChatRequestDependencies,
): ChatRequest | Promise<ChatRequest> {
  const { keyId } = principal;
  const parse = () => {
    refuseAfterBadBodies(principal, badBodies);
    try {
      return parseChatRequest(decodeJson(bytes), catalog);
    } catch (error) {
      badBodies.fail(keyId, badBodyWeight(bytes.byteLength));
      throw error;
    }
  };
  const isSuspect = badBodies.failures(keyId) >= SUSPECT_BODY_WEIGHT;
  return isSuspect ? parseLane.run(parse) : parse();
}

function refuseAfterBadBodies(
  { keyId }: Principal,
  badBodies: FailureLimiter,
): void {
  const waitMs = badBodies.waitMs(keyId);
  if (waitMs === 0) return;
  throw tooManyBadBodies(waitMs, { connection: "close" });
}
