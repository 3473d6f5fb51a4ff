import assert from "node:assert/strict";
import { createRedact } from "./redact.ts";

const KEY = "abcd1234-of-the-model-server";
const redact = createRedact({
  secrets: [KEY, "", "team-secret-header"],
  baseUrl: new URL("https://gpu-7.internal.example:8443/v1"),
});

const cases: { name: string; text: string; clean: string }[] = [
  {
    name: "ordinary text",
    text: "max_tokens is too large: 5000",
    clean: "max_tokens is too large: 5000",
  },
  {
    name: "the key",
    text: `Key ${KEY} expired, ${KEY}!`,
    clean: "Key [redacted] expired, [redacted]!",
  },
  {
    name: "a header value",
    text: "got team-secret-header",
    clean: "got [redacted]",
  },
  {
    name: "the host",
    text: "gpu-7.internal.example is down",
    clean: "[redacted] is down",
  },
  {
    name: "any URL",
    text: "see http://10.0.0.1:9000/a?b=c, or ws://x/y",
    clean: "see [redacted] or [redacted]",
  },
  {
    name: "an address",
    text: "from 192.168.1.20:8000.",
    clean: "from [redacted].",
  },
  {
    name: "a bearer credential",
    text: "Authorization: Bearer abc.def",
    clean: "Authorization: [redacted]",
  },
  {
    name: "a key of another vendor",
    text: "Incorrect API key: sk-proj-abcDEF123",
    clean: "Incorrect API key: [redacted]",
  },
  {
    name: "a masked key",
    text: "Incorrect API key: sk-ab**********wxyz.",
    clean: "Incorrect API key: [redacted]",
  },
  {
    name: "line ends and controls",
    text: "a\r\nb\u0000c\u001b[31m",
    clean: "a b c [31m",
  },
  { name: "half a character", text: "a\ud83db", clean: "a\ufffdb" },
  { name: "blanks around", text: "  a  ", clean: "a" },
  {
    name: "words that look like keys",
    text: "task-list, disk_usage, key_name",
    clean: "task-list, disk_usage, key_name",
  },
];

for (const { name, text, clean } of cases) {
  Deno.test(`redact() handles ${name}`, () =>
    assert.equal(redact(text), clean));
}

for (
  const [chars, length] of [[499, 499], [500, 500], [501, 500], [
    100_000,
    500,
  ]] as const
) {
  Deno.test(`redact() leaves ${length} of ${chars} characters`, () => {
    const clean = redact("x".repeat(chars));
    assert.equal(clean.length, length);
    assert.equal(clean.endsWith("…"), chars > 500);
  });
}

Deno.test("API10: redact() leaves no part of a secret that lies across the cut", () => {
  const clean = redact("x".repeat(500 - KEY.length / 2) + KEY);
  assert.ok(!clean.includes(KEY.slice(0, 4)), clean);
});
