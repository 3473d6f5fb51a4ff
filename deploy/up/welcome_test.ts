import assert from "node:assert/strict";
import { describeSummary } from "./welcome.ts";

const STATE = {
  edge_urls: ["http://127.0.0.1:8080", "http://127.0.0.1:40001"],
  ...{ console_url: "http://127.0.0.1:8081", setup_url: null },
};
const RUN = { runDir: "/repo/.run", seconds: 1.23 };
const answering = { servers: "http://vllm/v1", isAnswering: true };
const SPEAKS = { id: "speaks", kind: "speech", ...answering } as const;

Deno.test("describeSummary() prints a curl command that a shell reads correctly", async () => {
  const down = { servers: "http://x: not reachable", isAnswering: false };
  const text = describeSummary(STATE, { key: "sk-CgTest" }, [
    SPEAKS,
    { id: "down", kind: "chat", ...down },
    { id: "it's-a-model", kind: "chat", ...answering },
  ], RUN);
  assert.match(text, /^Ready in 1\.2 s\n/);
  assert.match(text, /Models +speaks -> http:\/\/vllm\/v1\n/);
  assert.match(text, /\n +http:\/\/127\.0\.0\.1:40001\/v1\n/);
  const line = text.split("\n").find((line) => line.trim().startsWith("curl"));
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", `curl() { printf '%s\\n' "$@"; }\n${line}`],
  }).output();
  const body = {
    ...{ model: "it's-a-model", stream: true },
    messages: [{ role: "user", content: "Say hello in five words." }],
  };
  assert.deepEqual(new TextDecoder().decode(stdout).trim().split("\n"), [
    ...["-N", "http://127.0.0.1:8080/v1/chat/completions"],
    ...["-H", "Authorization: Bearer sk-CgTest"],
    ...["-H", "Content-Type: application/json", "-d", JSON.stringify(body)],
  ]);
});

Deno.test("describeSummary() prints no curl command for a chat without a chat model", () => {
  const text = describeSummary(STATE, { key: "sk-CgTest" }, [SPEAKS], RUN);
  assert.match(text, /Models +speaks -> /);
  assert.doesNotMatch(text, /curl|Try it/);
});
