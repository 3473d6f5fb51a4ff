/** Chat requests of which only the status matters. */
import assert from "node:assert/strict";
import { type CallOptions, postChat } from "../chat_request.ts";
import { waitFor } from "../wait_for.ts";

const SERVED_MS = 30_000;

/** Sends a chat request with one message to an edge at `url`. */
export function sendChat(
  url: string,
  key: string,
  { content = "hello", ...init }: { content?: string } & CallOptions = {},
): Promise<Response> {
  const messages = [{ role: "user", content }];
  return postChat(`${url}/v1`, key, { ...init, body: { messages } });
}

/** Returns the status of an answer that it reads to its end. */
export async function readStatus(
  response: Response | Promise<Response>,
): Promise<number> {
  const answer = await response;
  await answer.body?.cancel();
  return answer.status;
}

/** Status of a chat request, whose answer is thrown away. */
export function statusOf(url: string, key: string): Promise<number> {
  return readStatus(sendChat(url, key));
}

/** Waits until the edge answers with what it knows of the key: anything but 503. */
export async function servedStatus(url: string, key: string): Promise<number> {
  return await waitFor(async () => {
    const status = await statusOf(url, key);
    return status !== 503 && status;
  }, { what: `${url} to serve`, timeoutMs: SERVED_MS, intervalMs: 50 });
}

/**
 * Sends requests until one is refused, and returns how many were admitted: at most
 * twice the limit.
 */
export async function admittedCount(
  url: string,
  key: string,
  limit: number,
): Promise<number> {
  for (let count = 0;; count++) {
    if (await servedStatus(url, key) === 429) return count;
    assert.ok(count <= 2 * limit, "the limit does not hold at all");
  }
}
