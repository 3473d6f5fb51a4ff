import assert from "node:assert/strict";
import { httpUrl } from "./service_programs.ts";
import { describeSummary } from "./summary.ts";

const SUMMARY = {
  edgeUrls: ["http://127.0.0.1:8080", "http://127.0.0.1:40001"],
  consoleUrl: "http://127.0.0.1:8081",
  setupUrl: null,
  firstKey: { key: "sk-CgTest" },
  model: "it's-a-model",
  logsDir: "/repo/.run/logs",
  stateFile: "/repo/.run/up.json",
  seconds: 1.23,
};

Deno.test("describeSummary() has a curl line that a shell reads as meant", async () => {
  const text = describeSummary(SUMMARY);
  const line = text.split("\n").find((line) => line.trim().startsWith("curl"));
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", `curl() { printf '%s\\n' "$@"; }\n${line}`],
  }).output();
  assert.deepEqual(new TextDecoder().decode(stdout).trim().split("\n"), [
    "-N",
    "http://127.0.0.1:8080/v1/chat/completions",
    "-H",
    "Authorization: Bearer sk-CgTest",
    "-H",
    "Content-Type: application/json",
    "-d",
    JSON.stringify({
      model: "it's-a-model",
      stream: true,
      messages: [{ role: "user", content: "Say hello in five words." }],
    }),
  ]);
});

Deno.test("describeSummary() names each edge, and the link for the first owner", () => {
  const text = describeSummary({ ...SUMMARY, setupUrl: "http://c/setup#t" });
  assert.match(text, /^Ready in 1\.2 s\n/);
  assert.match(text, /Base URL +http:\/\/127\.0\.0\.1:8080\/v1\n/);
  assert.match(text, /\n +http:\/\/127\.0\.0\.1:40001\/v1\n/);
  assert.match(
    text,
    /Console +http:\/\/c\/setup#t\n +makes you its first owner/,
  );
  assert.ok(!describeSummary(SUMMARY).includes("first owner"), "there is one");
});

Deno.test("describeSummary() says why there is no key", () => {
  const firstKey = { note: "No key: reasons" };
  const text = describeSummary({ ...SUMMARY, firstKey });
  assert.match(text, /API key +No key: reasons/);
  assert.match(text, /Bearer \$API_KEY"/);
});

Deno.test("httpUrl() gives an address that can be called", () => {
  assert.equal(httpUrl("127.0.0.1", 1), "http://127.0.0.1:1");
  assert.equal(httpUrl("0.0.0.0", 1), "http://127.0.0.1:1");
  assert.equal(httpUrl("::", 1), "http://127.0.0.1:1");
  assert.equal(httpUrl("::1", 1), "http://[::1]:1");
});
