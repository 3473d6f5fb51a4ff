import assert from "node:assert/strict";
import { askPort } from "./local_server.ts";
import { startNatsServer } from "./nats_server.ts";
import { startRedisServer } from "./redis_fixture.ts";
import { waitFor } from "./wait_for.ts";

async function exists(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

Deno.test("startNatsServer() serves, and leaves nothing behind", async () => {
  let pid = 0;
  let directory = "";
  {
    await using nats = await startNatsServer();
    pid = nats.pid();
    directory = nats.directory;
    assert.match(await askPort(nats.port, ""), /^INFO \{/);
  }
  assert.equal(await exists(directory), false);
  assert.throws(() => Deno.kill(pid, "SIGCONT"), Deno.errors.NotFound);
});

Deno.test("startNatsServer() says why a server did not start", async () => {
  await assert.rejects(
    startNatsServer({ config: "ping_max: [nonsense" }),
    /Cannot start nats-server on port \d+.*Parse error/,
  );
});

Deno.test("startRedisServer() keeps its data over restart() when told to write it", async () => {
  await using redis = await startRedisServer({
    args: ["--appendonly", "yes", "--appendfsync", "always"],
  });
  const before = redis.pid();
  assert.equal(await askPort(redis.port, "SET k v\r\n"), "+OK\r\n");
  await redis.restart();
  assert.equal(await askPort(redis.port, "GET k\r\n"), "$1\r\nv\r\n");
  assert.notEqual(redis.pid(), before);
});

Deno.test("waitFor() names what it waited for in vain", async () => {
  await assert.rejects(
    waitFor(() => false, { what: "a miracle", timeoutMs: 10 }),
    /Waited 10 ms in vain for a miracle/,
  );
  assert.equal(await waitFor(() => 0, { what: "any number" }), 0);
});
