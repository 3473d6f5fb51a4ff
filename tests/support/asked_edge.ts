/** What an edge that runs as a process of its own answers while Redis changes under it. */
import assert from "node:assert/strict";
import { sendChat } from "./service_processes.ts";
import { waitFor } from "./wait_for.ts";

const SERVED_MS = 30_000;

/** Status of a chat request, whose answer is thrown away. */
export async function statusOf(url: string, key: string): Promise<number> {
  const response = await sendChat(url, key, "hello");
  await response.body?.cancel();
  return response.status;
}

/** Waits until the edge answers with what it knows of the key: anything but 503. */
export async function servedStatus(url: string, key: string): Promise<number> {
  return await waitFor(async () => {
    const status = await statusOf(url, key);
    return status === 503 ? undefined : status;
  }, { what: `${url} to serve`, timeoutMs: SERVED_MS, intervalMs: 50 });
}

/** Sends requests until one is refused, and returns how many were admitted: at most twice the limit. */
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
