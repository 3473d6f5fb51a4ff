/**
 * Guarantee: owners see and stop only their own running requests, operators those of
 * everybody, with a reason, and both audit logs have it.
 */
import assert from "node:assert/strict";
import { commandDeps, runCommand } from "../../../cli/commands_fixture.ts";
import { RUNNING } from "../../../cli/running.ts";
import type { TestClient } from "../../../client_fixture.ts";
import { startConsole, type TestConsole } from "../../../console_fixture.ts";
import { entries, routeOwner } from "../../../routes_fixture.ts";
import { run } from "../../running_fixture.ts";

/** The text of a page without its tags. */
const textOf = async (client: TestClient, path: string) =>
  (await client.get(path)).text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ");

/** Two owners with a request each, and an operator. */
async function startRunning() {
  const site = await startConsole({ redisUser: "key-admin" });
  const operator = await routeOwner(site, 0);
  await site.deps.owners.giveRole(operator.ownerId);
  const [ada, bob] = [await routeOwner(site, 1), await routeOwner(site, 2)];
  const first = run(site, ada, { model: "<b>gpt</b>", ageMs: 192_000 });
  const second = run(site, bob, { state: "streaming", backend: "gpu-1" });
  return { site, operator, ada, bob, first, second };
}

Deno.test("API1: an owner sees and stops only what runs with the own keys", async () => {
  const { site, ada, first, second } = await startRunning();
  await using _ = site;
  const own = await textOf(ada.client, "/requests/running");
  assert.match(own, /Secret project 1 .*Running – .*3 min 12 s/);
  assert.ok(own.includes("&lt;b&gt;gpt&lt;/b&gt;") && own.includes(first));
  assert.ok(!own.includes(second));
  for (const path of ["/people/running", "/people/running/stop"]) {
    assert.equal((await ada.client.get(path)).status, 404);
  }
  const path = "/requests/running/stop";
  assert.equal((await ada.client.get(`${path}?request=${second}`)).status, 404);
  const others = await ada.client.post(path, { request: second });
  assert.equal(others.status, 404);
  assert.equal(site.running.length, 2);
  const question = await textOf(ada.client, `${path}?request=${first}`);
  assert.match(question, /Stop this request\? .*The key still works/);
  const stopped = await ada.client.post(path, { request: first });
  assert.equal(stopped.status, 303, stopped.text);
  const [entry] = (await entries(site, ada.ownerId)).slice(-1);
  assert.partialDeepStrictEqual(entry, {
    action: "key.request_stopped",
    by: ada.email,
    keyId: ada.keyId,
    detail: `${first}, <b>gpt</b>`,
  });
  // A form that is sent twice.
  const again = await ada.client.post(path, { request: first });
  assert.equal(again.status, 404);
  assert.match(again.text, /does not run any more/);
  assert.match(await textOf(ada.client, "/requests/running"), /Nothing runs/);
});

Deno.test("an operator sees all, and stops with a reason that the owner reads", async () => {
  const { site, operator, bob, first, second } = await startRunning();
  await using _ = site;
  const all = await textOf(operator.client, "/people/running");
  assert.ok(all.includes(first) && all.includes(second));
  assert.match(all, /owner2 ?@example ?\.org .*Streaming gpu-1/);
  const path = "/people/running/stop";
  const without = await operator.client.post(path, { request: second });
  assert.equal(without.status, 400);
  assert.match(without.text, /Say why you stop it/);
  assert.equal(site.running.length, 2);
  const reason = "It loops";
  await operator.client.post(path, { request: second, reason });
  assert.deepEqual(site.running.map(({ requestId }) => `req_${requestId}`), [
    first,
  ]);
  const detail = `${second}, small-1: It loops`;
  const [entry] = (await entries(site, bob.ownerId)).slice(-1);
  assert.partialDeepStrictEqual(entry, { detail, by: operator.email });
  const [own] = (await entries(site, operator.ownerId)).slice(-1);
  assert.equal(own?.detail, `${bob.email}: ${detail}`);
  assert.match(
    await textOf(bob.client, `/keys/${bob.keyId}`),
    /A running request stopped by owner0@example\.org.*It loops/,
  );
});

Deno.test("a silent bus or edge is told, and changes nothing", async () => {
  const { site, operator, second } = await startRunning();
  await using _ = site;
  const { list } = site.deps.running;
  const look = () => operator.client.get("/people/running");
  site.deps.running.list = async (account) => {
    const found = await list(account);
    return found && { ...found, silentEdges: 2, more: 1_500 };
  };
  const { text } = await look();
  assert.match(text, /2 edges have\s+not answered in time/);
  assert.match(text, /1,500 more run: these are the oldest/);
  site.deps.running.list = list;
  site.deps.running.stop = () => Promise.resolve("unreachable");
  const form = { request: second, reason: "It loops" };
  const unsure = await operator.client.post("/people/running/stop", form);
  assert.equal(unsure.status, 503);
  assert.match(unsure.text, /No edge has confirmed it/);
  site.deps.running.list = () => Promise.resolve(null);
  assert.equal((await look()).status, 503);
});

/** Runs a command on running requests. */
const command = (site: TestConsole, args: readonly string[]) =>
  runCommand(
    { running: RUNNING },
    ["running", ...args],
    commandDeps(site, {
      askRunning: () =>
        Promise.resolve({
          ...site.deps.running,
          [Symbol.asyncDispose]: () => Promise.resolve(),
        }),
    }),
  );

Deno.test("running: listed by account, key and model, and stopped by a command", async () => {
  const { site, ada, bob, first, second } = await startRunning();
  await using _ = site;
  const { text } = await command(site, []);
  assert.match(text, /^REQUEST ID +STATE +FOR +TOKENS +KEY ID +ACCOUNT/);
  assert.ok(text.includes(first) && text.includes(second));
  const idsOf = async (...args: string[]) =>
    [...(await command(site, args)).text.matchAll(/req_\w+/g)].join();
  assert.equal(await idsOf("--owner", ada.email), first);
  assert.equal(await idsOf("--key", bob.keyId), second);
  assert.equal(await idsOf("--model", "small-1"), second);
  await assert.rejects(command(site, ["stop", "12"]), /32 hexadecimal/);
  const stopped = await command(site, ["stop", second, "--reason", "Loops"]);
  assert.partialDeepStrictEqual(stopped.json, { stopped: true });
  const [entry] = (await entries(site, bob.ownerId)).slice(-1);
  assert.equal(entry?.detail, `${second}, small-1: Loops`);
  await assert.rejects(command(site, ["stop", second]), /not run any more/);
});
