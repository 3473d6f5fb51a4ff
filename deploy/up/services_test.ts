import assert from "node:assert/strict";
import { httpUrl, type ProgramContext, serviceProgram } from "./services.ts";

const ENV = {
  NATS_CA_FILE: "/etc/pki/ca.pem",
  REDIS_PASSWORD_FILE: "/run/secrets/redis",
  UPSTREAM_API_KEY_FILE: "/run/secrets/upstream",
  REDIS_CERT_FILE: "",
  OTHER_FILE: "/etc/shadow",
  NATS_URL_FILE: "/run/secrets/nats_url",
};
const OWN = ["/gateway/services", "/gateway/shared"];

function contextOf(env: Record<string, string>): ProgramContext {
  return {
    root: "/gateway",
    cwd: "/home/ada",
    scriptOf: (name) => name,
    env,
    natsUrl: "nats://nats",
    redisUrl: "redis://redis",
  };
}

const readable = ({ args }: { args: readonly string[] }) =>
  args.filter((arg) => arg.startsWith("--allow-read"));

Deno.test("a service may read only the files that its variables name", () => {
  const context = contextOf(ENV);
  const stores = ["/etc/pki/ca.pem", "/run/secrets/redis"];
  assert.deepEqual(readable(serviceProgram(context, "edge-auth")), [
    `--allow-read=${[...OWN, ...stores].join()}`,
  ]);
  assert.deepEqual(readable(serviceProgram(context, "chat-worker")), [
    `--allow-read=${[...OWN, ...stores, "/run/secrets/upstream"].join()}`,
  ]);
});

Deno.test("only workers get the key of the model server", () => {
  const env = { ...ENV, UPSTREAM_API_KEY: "secret" };
  const edge = serviceProgram(contextOf(env), "edge-auth").env ?? {};
  assert.equal("UPSTREAM_API_KEY" in edge, false);
  assert.equal("UPSTREAM_API_KEY_FILE" in edge, false);
  const worker = serviceProgram(contextOf(env), "chat-worker").env ?? {};
  assert.equal(worker.UPSTREAM_API_KEY, "secret");
});

Deno.test("a URL from a file is passed on as a URL, not as a file", () => {
  const { env = {} } = serviceProgram(contextOf(ENV), "chat-worker");
  assert.equal(env.NATS_URL, "nats://nats");
  assert.equal("NATS_URL_FILE" in env, false);
});

Deno.test("a path with a comma is not split into two permissions", () => {
  const context = contextOf({ NATS_CA_FILE: "/etc/a,/etc/b" });
  assert.deepEqual(readable(serviceProgram(context, "chat-worker")), [
    "--allow-read",
  ]);
});

Deno.test("httpUrl() returns a URL that can be called", () => {
  assert.equal(httpUrl("127.0.0.1", 1), "http://127.0.0.1:1");
  assert.equal(httpUrl("0.0.0.0", 1), "http://127.0.0.1:1");
  assert.equal(httpUrl("::", 1), "http://127.0.0.1:1");
  assert.equal(httpUrl("::1", 1), "http://[::1]:1");
});
