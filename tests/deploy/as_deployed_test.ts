// Promise: the services work as the users of deploy/, over mutual TLS: a key is
// created, requests of every kind are answered through edge and workers, a key is
// stopped. A service trusts only the given authority, and NATS and Redis refuse clients
// whose certificate that authority has not signed. Without TLS:
// tests/deploy/rotation_long_test.ts and deploy/compose_test.
import assert from "node:assert/strict";
import { callApi, postChat } from "../support/chat_request.ts";
import {
  deployedEnv,
  makeSecrets,
  startDeployedNats,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import {
  createTestAuthority,
  type TestAuthority,
} from "../support/deployed/test_authority.ts";
import { servedStatus, statusOf } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { ServiceEnv } from "../support/gateway/services.ts";
import { makeKey, runKeys } from "../support/gateway/key_commands.ts";

/** Larger than one message of the bus, so it is sent in pieces. */
const LARGE = "word ".repeat(112_000);
const TRUST = "ASVS 12.3.1, 12.3.2, 12.3.4: no other authority is trusted";

/** Sends a request, which succeeds. */
type Send = (
  method: string,
  path: string,
  body?: object,
) => Promise<Response>;

async function chats(send: Send): Promise<void> {
  for (const content of ["hello", LARGE]) {
    const messages = [{ role: "user", content }];
    const fields = { model: "neutral-3.7-plus", messages };
    const answer = await send("POST", "chat/completions", fields);
    assert.equal((await answer.json()).object, "chat.completion");
  }
}

async function speaksAndHears(send: Send): Promise<void> {
  const spoken = await send("POST", "audio/speech", {
    model: "simulated-speech-1",
    voice: "alloy",
    input: "word ".repeat(200),
    response_format: "wav",
  });
  const form = new FormData();
  form.append("model", "simulated-transcription-1");
  // Sent in several pieces.
  form.append("file", new File([await spoken.bytes()], "a.wav"));
  const heard = await send("POST", "audio/transcriptions", form);
  assert.match((await heard.json()).text, /a\.wav/);
}

async function films(send: Send): Promise<void> {
  const film = { model: "simulated-video-1", prompt: "A kite" };
  const { id } = await (await send("POST", "videos", film)).json();
  const { data } = await (await send("GET", "videos")).json();
  assert.equal(data[0].id, id);
  for (const method of ["GET", "DELETE"]) {
    await (await send(method, `videos/${id}`)).body?.cancel();
  }
}

async function keeps(baseUrl: string, key: string): Promise<void> {
  const ask = async () => {
    const answer = await postChat(baseUrl, key, {
      body: { stream: true, max_tokens: 3 },
      headers: { "idempotency-key": "deployed" },
    });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    return { text, id: answer.headers.get("x-gateway-answer") };
  };
  const { text, id } = await ask();
  assert.match(text, /^id: 1$/m);
  assert.equal((await ask()).text, text);
  for (const [method, status] of [["DELETE", 200], ["GET", 404]] as const) {
    const reply = await callApi(`${baseUrl}/answers/${id}`, key, { method });
    assert.equal(reply.status, status, await reply.text());
  }
}

async function trustsNoOther(
  another: TestAuthority,
  adminEnv: ServiceEnv,
): Promise<void> {
  const { certFile, keyFile } = another.client;
  const foreign = [
    { REDIS_CA_FILE: another.caFile },
    { REDIS_CERT_FILE: certFile, REDIS_KEY_FILE: keyFile },
  ];
  for (const wrong of foreign) {
    const listed = runKeys({ ...adminEnv, ...wrong }, "list");
    await assert.rejects(listed, /certificate|Cannot reach redis/i);
  }
}

Deno.test("the services work as deployed", async (t) => {
  await using authority = await createTestAuthority();
  await using secrets = await makeSecrets();
  await using nats = await startDeployedNats(secrets, authority);
  await using redis = await startDeployedRedis(secrets, authority);
  const stores = { secrets, nats, redis, authority };
  const envOf = (user: Parameters<typeof deployedEnv>[1]) =>
    deployedEnv(stores, user);
  const adminEnv = envOf("admin");
  await using gateway = await startGateway("services");
  const services = await Promise.all([
    gateway.start("edge-auth", envOf("edge")),
    gateway.start("chat-worker", envOf("worker")),
    gateway.start("media-worker", envOf("media")),
    gateway.start("key-admin", adminEnv),
  ]);
  const [{ url }] = services;
  const output = () => services.map(({ process }) => process.output()).join("");
  const scopes = "--scopes=chat,models,speech,video";
  const { id, key } = await makeKey(adminEnv, scopes);
  const send: Send = async (method, path, body) => {
    const response = await callApi(`${url}/v1/${path}`, key, { body, method });
    assert.equal(response.status, 200, output());
    return response;
  };

  await t.step("a short chat and a long one are answered", () => chats(send));
  await t.step(
    "a text is spoken, and the recording transcribed",
    () => speaksAndHears(send),
  );
  await t.step("a video is begun, listed and deleted", () => films(send));
  await t.step(
    "an answer is kept, read again and deleted",
    () => keeps(`${url}/v1`, key),
  );
  await t.step("Redis keeps the key over a kill", async () => {
    // Redis loads its file as the user `default` and skips commands that this user
    // may not run. The user therefore may run all, and no client may sign in as it.
    await redis.server.restart();
    assert.doesNotMatch(redis.server.output(), /CRITICAL|NOPERM/);
    assert.equal(await servedStatus(url, key), 200);
  });
  await t.step("a stopped key is refused", async () => {
    await runKeys(adminEnv, "disable", id, "--stop-running");
    assert.equal(await statusOf(url, key), 403);
  });
  await using another = await createTestAuthority();
  await t.step(TRUST, () => trustsNoOther(another, adminEnv));
  await t.step("NATS and Redis refused no service", () => {
    assert.doesNotMatch(output(), /NOPERM|Permissions Violation/i);
  });
});
