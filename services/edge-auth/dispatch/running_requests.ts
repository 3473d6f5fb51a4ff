/**
 * Which request belongs to which key, from before it is admitted until it has
 * ended: for a key that is disabled together with its running requests. key-admin
 * tells every edge; the state of the key itself is read from Redis by every request
 * and needs no notice.
 */
import { z } from "zod";
import type { Principal } from "@gateway/shared/keys/record";
import type { Log } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import type { ChatDispatcher } from "./dispatcher.ts";

export class RunningRequests {
  readonly #requestsByKey = new Map<string, Set<string>>();
  /** Stopped while Redis was still being asked: they have no run that could be cancelled. */
  readonly #stopped = new Set<string>();

  /** Must come before the key is checked: a notice to stop may overtake the answer. */
  add(principal: Principal, requestId: string): void {
    const requests = this.#requestsByKey.get(principal.keyId);
    if (requests !== undefined) requests.add(requestId);
    else this.#requestsByKey.set(principal.keyId, new Set([requestId]));
  }

  remove(principal: Principal, requestId: string): void {
    this.#stopped.delete(requestId);
    const requests = this.#requestsByKey.get(principal.keyId);
    requests?.delete(requestId);
    if (requests?.size === 0) this.#requestsByKey.delete(principal.keyId);
  }

  /** Marks the requests of a key and returns their ids. */
  stop(keyId: string): ReadonlySet<string> {
    const requests = new Set(this.#requestsByKey.get(keyId));
    for (const requestId of requests) this.#stopped.add(requestId);
    return requests;
  }

  /** Whether a notice to stop this request has come. */
  isStopped(requestId: string): boolean {
    return this.#stopped.has(requestId);
  }

  /** Keys that have running requests. None when all requests are over, which is what tests ask. */
  get keys(): number {
    return this.#requestsByKey.size;
  }
}

const noticeSchema = z.object({
  keyId: z.string(),
  action: z.literal("stop"),
});

export interface StopKeyDependencies {
  dispatcher: Pick<ChatDispatcher, "cancelAll">;
  running: RunningRequests;
  log: Log;
}

/** Takes in a message on the key subject. Anything but a notice to stop is ignored. */
export function stopKeyRequests(
  data: Uint8Array,
  { dispatcher, running, log }: StopKeyDependencies,
): void {
  const keyId = readNotice(data);
  if (keyId === null) return;
  const requests = running.stop(keyId);
  log.info("key_requests_stopped", { keyId, requests: requests.size });
  dispatcher.cancelAll(
    "key_revoked",
    keyRevoked(),
    (requestId) => requests.has(requestId),
  );
}

/** The last word to a request whose key was disabled together with it. */
export function keyRevoked(): ApiError {
  return new ApiError("key_revoked", "The API key was revoked.");
}

function readNotice(data: Uint8Array): string | null {
  try {
    const parsed = noticeSchema.safeParse(
      JSON.parse(new TextDecoder().decode(data)),
    );
    return parsed.success ? parsed.data.keyId : null;
  } catch {
    return null; // Not JSON, so not a notice of this version.
  }
}
