// Promise: `deno task up` works with given servers that require a password and a client
// certificate, and whose certificate is signed by a private authority. The same gateway
// stands behind the front proxy: `front_proxy_checks.ts`, of which the full run
// (tests/support/amount.ts) sends more requests.
import assert from "node:assert/strict";
import { servedStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import {
  natsTls,
  redisTls,
  tlsVariables,
} from "../support/deployed/deployed_stores.ts";
import { createTestAuthority } from "../support/deployed/test_authority.ts";
import { freePort } from "../support/servers/local_server.ts";
import { startNatsServer } from "../support/servers/nats_server.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import { canRun, leaveOut } from "../support/process.ts";
import { makeScratch, startLauncher } from "../up/stand_ins/launcher.ts";
import {
  checkFrontProxy,
  checkOwnCertificate,
  FrontDoorPorts,
} from "./front_proxy_checks.ts";

const USER = "gateway";
/** With letters that a URL would need to escape. */
const PASSWORD = "p@ss/w%rd";
const MAIN = import.meta.resolve("../../deploy/up/main.ts");
const UP = [Deno.execPath(), "run", "--allow-all", MAIN];
const hasCaddy = await canRun("caddy", "version");

Deno.test("up uses given servers with passwords over mutual TLS", async (t) => {
  await using authority = await createTestAuthority();
  const login = `user: "${USER}", password: "${PASSWORD}"`;
  await using nats = await startNatsServer({
    config: `${natsTls(authority)}authorization { ${login} }`,
  });
  const tlsPort = freePort();
  await using _redis = await startRedisServer({
    config: `user default off\nuser ${USER} on >${PASSWORD} ~* &* +@all\n`,
    args: redisTls(authority, tlsPort),
  });
  await using scratch = await makeScratch();
  const passwordFile = `${scratch.path}/password`;
  await Deno.writeTextFile(passwordFile, `${PASSWORD}\n`);
  const env = {
    ...tlsVariables("NATS", authority),
    NATS_URL: `tls://${nats.server}`,
    NATS_USER: USER,
    NATS_PASSWORD_FILE: passwordFile,
    ...tlsVariables("REDIS", authority),
    REDIS_URL: `rediss://127.0.0.1:${tlsPort}`,
    REDIS_USERNAME: USER,
    REDIS_PASSWORD_FILE: passwordFile,
  };
  await t.step(
    "creates a key and answers, also behind the front proxy",
    async (t) => {
      const ports = new FrontDoorPorts();
      await using gateway = await startGateway("launched", {
        env: { ...env, ...ports.env },
        createsKey: true,
      });
      const { edge_url, api_key, pids } = gateway.state;
      assert.deepEqual([pids.nats, pids.redis], [[], []]);
      assert.equal(await servedStatus(edge_url, api_key), 200);
      if (hasCaddy) await checkFrontProxy(t, gateway, ports);
    },
  );
  await t.step("says at once that the authority is unknown", async () => {
    const wrong = { ...env, REDIS_CA_FILE: "" };
    await using up = startLauncher({ command: UP, env: wrong });
    const says = /redis_state: .*certificate/;
    await up.prints(says);
  });
});

if (hasCaddy) {
  Deno.test(
    "the front proxy with a certificate of one's own",
    checkOwnCertificate,
  );
} else {
  leaveOut("API and console behind the front proxy", "caddy");
}
