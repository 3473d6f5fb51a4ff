import assert from "node:assert/strict";
import { monotonicNow } from "../process/clock.ts";
import { silentLog } from "../process/log.ts";
import { BusConfigError } from "./link.ts";
import { type BusOptions } from "./link_nats.ts";
import { formatAddress, planConnection } from "./link_options.ts";

const plan = (servers: string[], more: Partial<BusOptions> = {}) =>
  planConnection({
    servers,
    name: "test",
    log: silentLog,
    now: monotonicNow,
    random: () => 0,
    ...more,
  });

const GOOD: [string, string][] = [
  ["127.0.0.1:4333", "127.0.0.1:4333"],
  ["nats.example", "nats.example:4222"],
  ["nats://nats.example", "nats.example:4222"],
  ["nats://nats.example:80/", "nats.example:80"],
  ["tls://nats.example:443", "nats.example:443"],
  ["nats://[::1]:4333", "[::1]:4333"],
  ["nats://user:secret@nats.example:4333", "nats.example:4333"],
];

for (const [server, address] of GOOD) {
  Deno.test(`a server may be written ${server}`, () => {
    assert.deepEqual(plan([server]).addresses.map(formatAddress), [address]);
  });
}

const BAD = [
  "",
  "ws://nats.example",
  "http://nats.example",
  "nats://",
  "nats://nats.example/path",
  "nats://nats.example?x=1",
  "nats.example:70000",
  "nats://user:secret@nats.example:x",
];

for (const server of BAD) {
  Deno.test(`a server may not be written "${server}"`, () => {
    assert.throws(() => plan([server]), (error) => {
      assert.ok(error instanceof BusConfigError);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  });
}

Deno.test("no server at all is a configuration error", () => {
  assert.throws(() => plan([]), BusConfigError);
});

Deno.test("credentials in an address count unless others are given", () => {
  const server = "nats://us%40er:se%3Acret@nats.example";
  assert.deepEqual(plan([server]).credentials, {
    user: "us@er",
    password: "se:cret",
  });
  const credentials = { user: "other", password: "p" };
  assert.deepEqual(plan([server], { credentials }).credentials, credentials);
  assert.equal(plan(["nats.example"]).credentials, undefined);
});

Deno.test("a malformed nkey seed is found before connecting", () => {
  assert.throws(
    () => plan(["nats.example"], { credentials: { nkeySeed: "SUNO" } }),
    (error) =>
      error instanceof BusConfigError && !error.message.includes("SUNO"),
  );
});

Deno.test("tls:// asks for TLS, and a certificate needs its key", () => {
  assert.equal(plan(["nats://nats.example"]).tls, undefined);
  assert.deepEqual(plan(["tls://nats.example"]).tls, {});
  assert.throws(
    () => plan(["nats.example"], { tls: { certFile: "cert.pem" } }),
    BusConfigError,
  );
  assert.throws(
    () => plan(["nats.example"], { tls: { keyFile: "key.pem" } }),
    BusConfigError,
  );
});
