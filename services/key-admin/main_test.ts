import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { askPort } from "../../tests/support/local_server.ts";
import { freePort, startRedis, until } from "./redis_fixture.ts";

const MAIN = fileURLToPath(new URL("main.ts", import.meta.url));
/** What the service may do, and no more. */
const PERMISSIONS = [
  "--no-prompt",
  "--allow-net",
  "--allow-env",
  `--allow-read=${
    fileURLToPath(new URL("../..", import.meta.url))
  },/usr/bin/ldd`,
  "--allow-ffi",
];

const FORM = "Content-Type: application/x-www-form-urlencoded";
/** Methods that `fetch` does not send. */
const METHODS: [line: string, status: number][] = [
  ["TRACE /sign-in", 405],
  ["TRACK /sign-in", 405],
  ["get /sign-in", 405],
  ["CONNECT console:443", 421],
];

/** Starts the service and reads its log. */
function startService(env: Record<string, string>) {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-check", ...PERMISSIONS, MAIN],
    env,
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const lines: Record<string, unknown>[] = [];
  const reading = (async () => {
    const text = child.stdout.pipeThrough(new TextDecoderStream());
    let rest = "";
    for await (const piece of text) {
      const parts = (rest + piece).split("\n");
      rest = parts.pop() ?? "";
      lines.push(...parts.map((line) => JSON.parse(line)));
    }
  })();
  return {
    child,
    lines,
    event: (name: string) => lines.find(({ event }) => event === name),
    ended: async () => {
      const [{ code }, stderr] = await Promise.all([
        child.status,
        new Response(child.stderr).text(),
        reading,
      ]);
      return { code, stderr };
    },
  };
}

Deno.test("ASVS 13.4.4, 13.4.5, API9: the service starts, says where it is and how to set it up, serves no more than the console, and stops on SIGTERM", async () => {
  await using redis = await startRedis();
  const service = startService({
    PORT: "0",
    OPS_PORT: "0",
    REDIS_URL: redis.url,
    PUBLIC_URL: "",
  });
  await until(() => service.event("ready") !== undefined, 15_000);
  const { port, opsPort, durability } = service.event("ready") ?? {};
  assert.equal(durability, "always");
  const link = String(service.event("setup_link")?.url);
  assert.ok(link.startsWith(`http://127.0.0.1:${port}/link/`), link);
  const page = await fetch(link);
  assert.equal(page.status, 200);
  assert.match(await page.text(), /Set up the console/);
  for (const path of ["healthz", "readyz", "metrics"]) {
    const answer = await fetch(`http://127.0.0.1:${opsPort}/${path}`);
    assert.equal(answer.status, 200, path);
    await answer.body?.cancel();
    const outside = await fetch(`http://127.0.0.1:${port}/${path}`);
    assert.equal(outside.status, 404, "not on the public port");
    await outside.body?.cancel();
  }
  for (const [line, status] of METHODS) {
    const host = `Host: 127.0.0.1:${port}\r\nConnection: close\r\n`;
    const from = `Sec-Fetch-Site: same-origin\r\n${FORM}\r\n`;
    const answer = await askPort(
      Number(port),
      `${line} HTTP/1.1\r\n${host}${from}Cookie: secret=1\r\n\r\n`,
    );
    assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), line);
    assert.ok(!answer.includes("secret=1"), "nothing is echoed");
    if (status === 405) assert.match(answer, /^allow: GET, HEAD, POST\r$/im);
  }
  service.child.kill("SIGTERM");
  assert.equal((await service.ended()).code, 0);
  const log = JSON.stringify(
    service.lines.filter(({ event }) => event !== "setup_link"),
  );
  assert.ok(!log.includes(link.split("/link/")[1] ?? "?"), "secret in the log");
});

Deno.test("a redis that may lose changes is said loudly at the start", async () => {
  await using redis = await startRedis({ settings: ["--appendonly", "no"] });
  const service = startService({
    PORT: String(freePort()),
    OPS_PORT: "0",
    REDIS_URL: redis.url,
    PUBLIC_URL: "",
  });
  await until(() => service.event("ready") !== undefined, 15_000);
  assert.equal(service.event("not_durable")?.level, "error");
  service.child.kill("SIGTERM");
  await service.ended();
});
