/** Variables that several services have. */
import assert from "node:assert/strict";
import { ConfigError, type Env, parseEnv } from "./env.ts";
import * as serviceVariables from "./service_variables.ts";

const readFile = (path: string) => `${path}\n`;
const bus = (env: Env) =>
  serviceVariables.busAccess(
    parseEnv(serviceVariables.NATS_VARIABLES, env, readFile),
  );
const redis = (env: Env) =>
  serviceVariables.redisAccess(
    parseEnv(serviceVariables.REDIS_VARIABLES, env, readFile),
  );

Deno.test("busAccess() takes what the operator says, and a password that may change", () => {
  const servers = ["nats://nats:4222"];
  const cases: [
    env: Env,
    expected: Omit<serviceVariables.BusAccess, "servers">,
  ][] = [
    [{}, {}],
    [{ NATS_CA_FILE: "/tls/ca.pem" }, { tls: { caFile: "/tls/ca.pem" } }],
    [{ NATS_CERT_FILE: "/a.pem", NATS_KEY_FILE: "/a.key" }, {
      tls: { certFile: "/a.pem", keyFile: "/a.key" },
    }],
  ];
  for (const [env, expected] of cases) {
    const access = bus({ NATS_URL: "nats://nats:4222", ...env });
    assert.deepEqual(access, { servers, ...expected });
  }
  const NATS_PASSWORD_FILE = "/run/password";
  const { credentials } = bus({ NATS_USER: "edge", NATS_PASSWORD_FILE });
  assert.ok(credentials !== undefined && "user" in credentials);
  assert.equal(credentials.user, "edge");
  assert.equal(credentials.password(), "/run/password");
});

Deno.test("redisAccess() takes what the operator says, certificates as text, and sentinels", () => {
  assert.deepEqual(redis({ REDIS_URL: "redis://redis" }), {
    url: "redis://redis",
  });
  const tls = redis({
    REDIS_URL: "rediss://redis",
    REDIS_USERNAME: "edge",
    REDIS_PASSWORD_FILE: "/password",
    REDIS_CA_FILE: "/ca.pem",
    REDIS_CERT_FILE: "/own.pem",
    REDIS_KEY_FILE: "/own.key",
  });
  assert.deepEqual(tls, {
    url: "rediss://redis",
    username: "edge",
    password: "/password",
    tlsCa: "/ca.pem",
    tlsCert: "/own.pem",
    tlsKey: "/own.key",
  });
  const { sentinels } = redis({
    REDIS_SENTINELS: "sentinel-1:26379, 10.0.0.2:26379,[::1]:26379",
    REDIS_SENTINEL_USERNAME: "lookup",
    REDIS_SENTINEL_PASSWORD_FILE: "/password",
  });
  assert.deepEqual(sentinels, {
    name: "gateway",
    username: "lookup",
    password: "/password",
    servers: ["sentinel-1:26379", "10.0.0.2:26379", "[::1]:26379"],
  });
});

Deno.test("settings that contradict each other are mistakes of the operator", () => {
  const cases: [read: () => unknown, says: RegExp][] = [
    [() => bus({ NATS_USER: "edge" }), /NATS_USER and NATS_PASSWORD/],
    [() => bus({ NATS_PASSWORD: "p" }), /NATS_USER and NATS_PASSWORD/],
    [() => bus({ NATS_CERT_FILE: "/c" }), /NATS_CERT_FILE and NATS_KEY_FILE/],
    [() => redis({ REDIS_USERNAME: "e" }), /REDIS_PASSWORD is needed/],
    [
      () => redis({ REDIS_SENTINEL_USERNAME: "l" }),
      /REDIS_SENTINEL_PASSWORD is needed/,
    ],
    [() => redis({ REDIS_SENTINELS: "no-port" }), /host:port of each/],
    [() => redis({ REDIS_CA_FILE: "/tls/ca.pem" }), /rediss:/],
    [
      () => redis({ REDIS_KEY_FILE: "/tls/own.key" }),
      /REDIS_CERT_FILE and REDIS_KEY/,
    ],
  ];
  for (const [read, says] of cases) {
    assert.throws(
      read,
      (error) => error instanceof ConfigError && says.test(error.message),
      String(says),
    );
  }
});
