// Promise: the services work as the users of deploy/, with and without TLS: a key is
// created, a chat is answered through edge and worker, a key is stopped. With TLS a
// service trusts only the given authority, and NATS and Redis refuse clients whose
// certificate that authority has not signed.
import assert from "node:assert/strict";
import {
  deployedEnv,
  makeSecrets,
  startDeployedNats,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import {
  makeKey,
  runKeys,
  sendChat,
  servedStatus,
  type ServiceEnv,
  startService,
  statusOf,
} from "../support/service_processes.ts";
import { createTestAuthority } from "../support/deployed/test_authority.ts";

const MODES: [name: string, isTls: boolean][] = [
  ["passwords", false],
  ["passwords and mutual TLS", true],
];
/** Larger than one message of the bus, so that it is sent in pieces. */
const LARGE = "word ".repeat(112_000);

for (const [name, isTls] of MODES) {
  Deno.test(`the services work as deployed: ${name}`, async (t) => {
    await using authority = isTls ? await createTestAuthority() : undefined;
    await using secrets = await makeSecrets();
    await using nats = await startDeployedNats(secrets, authority);
    await using redis = await startDeployedRedis(secrets, authority);
    const stores = { secrets, nats, redis, authority };
    const adminEnv = deployedEnv(stores, "admin");
    const [edge, worker, media, admin] = await Promise.all([
      startService("edge-auth", deployedEnv(stores, "edge")),
      startService("chat-worker", deployedEnv(stores, "worker")),
      startService("media-worker", deployedEnv(stores, "media")),
      startService("key-admin", adminEnv),
    ]);
    await using _edge = edge;
    await using _worker = worker;
    await using _media = media;
    await using _admin = admin;
    const scopes = ["--scopes", "chat,models,speech,video"];
    const made = await makeKey(adminEnv, ...scopes);

    for (const content of ["hello", LARGE]) {
      const { length } = content;
      await t.step(`a chat of ${length} characters is answered`, async () => {
        const answer = await sendChat(edge.url, made.key, content);
        assert.equal(answer.status, 200, edge.process.output());
        assert.equal((await answer.json()).object, "chat.completion");
      });
    }
    await t.step(
      "a text is spoken, and the recording transcribed",
      async () => {
        const headers = { authorization: `Bearer ${made.key}` };
        const post = (path: string, body: BodyInit, more = {}) =>
          fetch(`${edge.url}/v1/audio/${path}`, {
            ...{ method: "POST", body, headers: { ...headers, ...more } },
          });
        const request = {
          model: "simulated-speech-1",
          voice: "alloy",
          input: "word ".repeat(200),
          response_format: "wav",
        };
        const json = { "content-type": "application/json" };
        const spoken = await post("speech", JSON.stringify(request), json);
        assert.equal(spoken.status, 200, media.process.output());
        const form = new FormData();
        form.append("model", "simulated-transcription-1");
        // Sent in several pieces.
        form.append("file", new File([await spoken.bytes()], "a.wav"));
        const heard = await post("transcriptions", form);
        assert.equal(heard.status, 200, media.process.output());
        assert.match((await heard.json()).text, /a\.wav/);
        const videos = `${edge.url}/v1/videos`;
        const asked = { model: "simulated-video-1", prompt: "A kite" };
        const begun = await fetch(videos, {
          ...{ method: "POST", body: JSON.stringify(asked) },
          headers: { ...headers, ...json },
        });
        const { id } = await begun.json();
        assert.equal(begun.status, 200, edge.process.output());
        for (
          const [method, path] of [["GET", ""], ["GET", `/${id}`], [
            "DELETE",
            `/${id}`,
          ]]
        ) {
          const init = { method: method ?? "", headers };
          const response = await fetch(`${videos}${path}`, init);
          assert.equal(response.status, 200, edge.process.output());
          await response.body?.cancel();
        }
      },
    );
    await t.step("Redis keeps the key over a kill", async () => {
      // Redis loads its file as the user `default` and skips commands that this user
      // may not run. The user therefore may run all, and no client may sign in as it.
      await redis.server.restart();
      assert.doesNotMatch(redis.server.output(), /CRITICAL|NOPERM/);
      assert.equal(await servedStatus(edge.url, made.key), 200);
    });
    await t.step("a stopped key is refused", async () => {
      await runKeys(adminEnv, "disable", made.id, "--stop-running");
      assert.equal(await statusOf(edge.url, made.key), 403);
    });
    if (isTls) {
      await using another = await createTestAuthority();
      const foreign: [name: string, env: ServiceEnv][] = [
        ["server", { REDIS_CA_FILE: another.caFile }],
        ["client", {
          REDIS_CERT_FILE: another.client.certFile,
          REDIS_KEY_FILE: another.client.keyFile,
        }],
      ];
      for (const [side, wrong] of foreign) {
        await t.step(
          `ASVS 12.3.1, 12.3.2, 12.3.4: a ${side} of another authority is not believed`,
          async () => {
            await assert.rejects(
              runKeys({ ...adminEnv, ...wrong }, "list"),
              /certificate|Cannot reach redis/i,
            );
          },
        );
      }
    }
    await t.step("NATS and Redis refused no service", () => {
      const said = [edge, worker, media, admin].map(({ process }) =>
        process.output()
      );
      assert.doesNotMatch(said.join(""), /NOPERM|Permissions Violation/i);
    });
  });
}
