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
  {
    name: "paths of files",
    text:
      "Cannot open /models/qwen/q4.gguf or '/w.gguf' (C:\\m\\a.bin, ~/x/y): src/llama.cpp:77, app.py:3",
    clean:
      "Cannot open [redacted] or '[redacted]' ([redacted] [redacted]): [redacted], [redacted]",
  },
  {
    name: "what only looks like a path",
    text: "text/plain and/or 4/5, see /v1/models, </s>, response_format.type",
    clean: "text/plain and/or 4/5, see /v1/models, </s>, response_format.type",
  },
  {
    name: "a stack trace of Python",
    text: 'Traceback (most recent call last):\n  File "/srv/app.py", line 3, ' +
      'in run\n    go(secret)\n  File "x.py", line 9, in go\nValueError: no',
    clean: "ValueError: no",
  },
  {
    name: "a stack trace of JavaScript",
    text: "Error: no\n    at run (/srv/app.js:3:1)\n    at async main:9",
    clean: "Error: no",
  },
  {
    name: "a stack trace of Go",
    text:
      "panic: no\n\ngoroutine 1 [running]:\nmain.go()\n\t/srv/main.go:3 +0x1",
    clean: "panic: no main.go()",
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
