/** Requests to count tokens whose client or key is gone. */
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { startApp } from "../app_fixture.ts";

const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };
const BODY = { model: "neutral-3.7-plus", messages: [], max_tokens: 1 };

/** A request that counts, while the rights of its key are read. */
async function setup({ isStopped }: { isStopped: boolean }) {
  const question = Promise.withResolvers<void>();
  const rights = Promise.withResolvers<readonly string[]>();
  let running = 0;
  const app = await startApp({
    keys: { find: () => Promise.resolve(PRINCIPAL) },
    admission: {
      admit: () => assert.fail("It counts only"),
      checkRefused: () => Promise.resolve(),
      modelsOf() {
        question.resolve();
        return rights.promise;
      },
    },
    countLimit: {
      take() {
        running += 1;
        return () => {
          running -= 1;
        };
      },
    },
    dispatcher: {
      isStoppedSince: () => isStopped,
      start: () => assert.fail("Nobody waits for it"),
    },
  });
  const leave = new AbortController();
  const answer = fetch(`${app.origin}/v1/messages/count_tokens`, {
    method: "POST",
    body: JSON.stringify(BODY),
    headers: {
      authorization: `Bearer ${mintKey(randomBytes)}`,
      "content-type": "application/json",
    },
    signal: leave.signal,
  });
  await question.promise;
  return { ...app, rights, leave, answer, running: () => running };
}

Deno.test("counting tokens does not run for a client that left while its rights were read", async () => {
  await using edge = await setup({ isStopped: false });
  edge.leave.abort();
  await assert.rejects(edge.answer);
  // The edge has seen it when it has answered another connection.
  await (await fetch(`${edge.origin}/health`)).text();
  edge.rights.resolve([]);
  await (await fetch(`${edge.origin}/health`)).text();
  assert.equal(edge.running(), 0);
});

Deno.test("counting tokens does not run for a key that was stopped meanwhile", async () => {
  await using edge = await setup({ isStopped: true });
  edge.rights.resolve([]);
  const answer = await edge.answer;
  assert.equal(answer.status, 403);
  await answer.body?.cancel();
  assert.equal(edge.running(), 0);
});
