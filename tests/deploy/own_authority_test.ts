// Promise: over TLS a service believes only the authority it was given, and the
// stores let nobody in whom that authority has not signed.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import {
  makeSecrets,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import { startProcess } from "../support/process.ts";
import { createTestAuthority } from "../support/deployed/test_authority.ts";

const CLI = fileURLToPath(
  new URL("../../services/key-admin/cli.ts", import.meta.url),
);

/** `keys list`, which needs Redis and nothing else. */
async function listKeys(env: Record<string, string>) {
  await using process = startProcess({
    command: Deno.execPath(),
    args: [
      ...["run", "--no-check", "--allow-net", "--allow-env", "--allow-read"],
      ...["--allow-sys", CLI, "keys", "list", "--json"],
    ],
    env: { NO_COLOR: "1", ...env },
  });
  const { success } = await process.exited;
  return { success, output: process.output() };
}

Deno.test("ASVS 12.3.1, 12.3.2, 12.3.4: over TLS only the own authority is believed, on both sides", async (t) => {
  await using authority = await createTestAuthority();
  await using another = await createTestAuthority();
  await using secrets = await makeSecrets();
  await using redis = await startDeployedRedis(secrets, authority);
  const right = {
    REDIS_URL: redis.url,
    REDIS_USERNAME: "key-admin",
    REDIS_PASSWORD_FILE: secrets.path("redis_admin_password"),
    REDIS_CA_FILE: authority.caFile,
    REDIS_CERT_FILE: authority.client.certFile,
    REDIS_KEY_FILE: authority.client.keyFile,
  };
  const rows: [name: string, env: Record<string, string>, isIn: boolean][] = [
    ["both sides as they should be", right, true],
    ["a server of another authority", {
      ...right,
      REDIS_CA_FILE: another.caFile,
    }, false],
    ["a client of another authority", {
      ...right,
      REDIS_CERT_FILE: another.client.certFile,
      REDIS_KEY_FILE: another.client.keyFile,
    }, false],
  ];
  for (const [name, env, isIn] of rows) {
    await t.step(name, async () => {
      const { success, output } = await listKeys(env);
      assert.equal(success, isIn, output);
      assert.equal(output.includes('"keys":'), isIn, output);
    });
  }
});
