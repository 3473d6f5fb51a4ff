// Promise: `deno task up` works with given servers that require a password and a client
// certificate, and whose certificate is signed by a private authority.
import assert from "node:assert/strict";
import { startCluster } from "../support/cluster.ts";
import { natsTls, redisTls } from "../support/deployed/deployed_stores.ts";
import { freePort } from "../support/local_server.ts";
import { startNatsServer } from "../support/nats_server.ts";
import { startRedisServer } from "../support/redis_server.ts";
import { servedStatus } from "../support/service_processes.ts";
import { makeScratch, startLauncher, until } from "../up/stand_ins/launcher.ts";
import {
  createTestAuthority,
  type TestAuthority,
} from "../support/deployed/test_authority.ts";

const USER = "gateway";
/** With letters that a URL would need to escape. */
const PASSWORD = "p@ss/w%rd";
const MAIN = import.meta.resolve("../../deploy/up/main.ts");
const UP = [Deno.execPath(), "run", "--allow-all", MAIN];

type Env = Record<string, string>;

async function startGivenStores(authority: TestAuthority) {
  await using stack = new AsyncDisposableStack();
  const nats = stack.use(
    await startNatsServer({
      config: natsTls(authority) +
        `authorization { user: "${USER}", password: "${PASSWORD}" }`,
    }),
  );
  const tlsPort = freePort();
  stack.use(
    await startRedisServer({
      config: `user default off\nuser ${USER} on >${PASSWORD} ~* &* +@all\n`,
      args: redisTls(authority, tlsPort),
    }),
  );
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  stack.defer(() => Deno.remove(directory, { recursive: true }));
  const passwordFile = `${directory}/password`;
  await Deno.writeTextFile(passwordFile, `${PASSWORD}\n`);
  const { caFile, client } = authority;
  const env = {
    NATS_URL: `tls://${nats.server}`,
    NATS_USER: USER,
    NATS_PASSWORD_FILE: passwordFile,
    NATS_CA_FILE: caFile,
    NATS_CERT_FILE: client.certFile,
    NATS_KEY_FILE: client.keyFile,
    REDIS_URL: `rediss://127.0.0.1:${tlsPort}`,
    REDIS_USERNAME: USER,
    REDIS_PASSWORD_FILE: passwordFile,
    REDIS_CA_FILE: caFile,
    REDIS_CERT_FILE: client.certFile,
    REDIS_KEY_FILE: client.keyFile,
  };
  const servers = stack.move();
  return { env, [Symbol.asyncDispose]: () => servers.disposeAsync() };
}

Deno.test("up uses given servers with passwords over mutual TLS", async (t) => {
  await using authority = await createTestAuthority();
  await using stores = await startGivenStores(authority);
  await t.step("creates a key and answers", async () => {
    await using cluster = await startCluster({ env: stores.env });
    const { edge_url, api_key, pids } = cluster.state;
    assert.deepEqual([pids.nats, pids.redis], [[], []]);
    assert.equal(await servedStatus(edge_url, api_key), 200);
  });
  // The servers go on, as these refusals show.
  const { REDIS_CA_FILE: _, ...withoutCa } = stores.env;
  const wrongUser = { ...stores.env, NATS_USER: "nobody" };
  const noFile = { ...stores.env, REDIS_CERT_FILE: "/nowhere/client.pem" };
  const mistakes: [name: string, env: Env, says: RegExp][] = [
    ["a certificate file is missing", noFile, /REDIS_CERT_FILE=.*\/nowhere\//],
    ["the authority is unknown", withoutCa, /redis_state: .*certificate/],
    ["the user is refused", wrongUser, /bus_not_reached .*Authorization/],
  ];
  for (const [name, env, says] of mistakes) {
    await t.step(`says at once that ${name}`, async () => {
      await using scratch = await makeScratch();
      await using up = startLauncher(scratch, { command: UP, env });
      await until(name, () => says.test(up.printed()));
    });
  }
});
