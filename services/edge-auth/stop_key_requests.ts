/**
 * Ends the running requests of a key that was disabled or deleted together with
 * them. Told by key-admin to every edge; the state of the key itself is read from
 * Redis by every request and needs no notice.
 */
import { z } from "zod";
import type { Log } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import type { ChatDispatcher } from "./chat_dispatcher.ts";
import type { RunningRequests } from "./running_requests.ts";

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
