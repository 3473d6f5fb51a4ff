/** The service as a process: start, ports, log, end. */
import assert from "node:assert/strict";
import { askPort } from "../../tests/support/servers/ask_port.ts";
import { startGateway } from "../../tests/support/gateway/gateway.ts";
import { startRedis } from "./redis_fixture.ts";

/** Methods that `fetch` does not send. */
const METHODS: [line: string, status: number][] = [
  ["TRACE /sign-in", 405],
  ["TRACK /sign-in", 405],
  ["get /sign-in", 405],
  ["CONNECT console:443", 421],
];

/** The line of the log about an event. */
const lineOf = (log: string, event: string): string =>
  log.split("\n").find((line) => line.includes(`"event":"${event}"`)) ?? "";

Deno.test("ASVS 13.4.4, 13.4.5, API9: the service logs its set-up link, serves only the console, and stops", async () => {
  await using redis = await startRedis(["--appendonly", "no"]);
  await using gateway = await startGateway("services");
  const service = await gateway.start("key-admin", {
    REDIS_URL: redis.url,
    PUBLIC_URL: "",
  });
  const { url, process, ready: { port, opsPort, durability } } = service;
  assert.equal(durability, "none");
  const lost = lineOf(process.output(), "not_durable");
  assert.equal(JSON.parse(lost).level, "error");
  const setup = lineOf(process.output(), "setup_link");
  const link = String(JSON.parse(setup).url);
  assert.ok(link.startsWith(`${url}/link/`), link);
  const page = await fetch(link);
  assert.equal(page.status, 200);
  assert.match(await page.text(), /Set up the console/);
  for (const path of ["healthz", "readyz", "metrics"]) {
    const answer = await fetch(`http://127.0.0.1:${opsPort}/${path}`);
    assert.equal(answer.status, 200, path);
    await answer.body?.cancel();
    const outside = await fetch(`${url}/${path}`);
    assert.equal(outside.status, 404, "not on the public port");
    await outside.body?.cancel();
  }
  const headers = [
    `Host: 127.0.0.1:${port}`,
    "Connection: close",
    "Sec-Fetch-Site: same-origin",
    "Content-Type: application/x-www-form-urlencoded",
    "Cookie: secret=1",
  ].join("\r\n");
  for (const [line, status] of METHODS) {
    const request = `${line} HTTP/1.1\r\n${headers}\r\n\r\n`;
    const answer = await askPort(Number(port), request);
    assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), line);
    assert.ok(!answer.includes("secret=1"), "nothing is echoed");
    if (status === 405) assert.match(answer, /^allow: GET, HEAD, POST\r$/im);
  }
  process.signal("SIGTERM");
  assert.equal((await process.exited).code, 0);
  const rest = process.output().replace(setup, "");
  const [, secret = assert.fail(link)] = link.split("/link/");
  assert.ok(!rest.includes(secret), "secret in the log");
});
