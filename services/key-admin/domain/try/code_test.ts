/** Requests as code, in each language. */
import assert from "node:assert/strict";
import { codeOf } from "./code.ts";
import { TRY_KINDS } from "./kinds.ts";

/** `tests/e2e/console_checks.ts` runs such code. */

const API = "https://api.test/v1";
const REQUEST = {
  model: "m",
  messages: [{ role: "user", content: `It's "a"\n\\ \u2028 é` }],
  tools: [{
    type: "function",
    function: { name: "look_up", strict: true, description: "x".repeat(60) },
  }],
  seed: -1.5e-9,
  enable_thinking: false,
  odd: { "with space": [], none: null },
};

Deno.test("the code of Try it has every field, quoted for its language; fields unknown to packages are apart", () => {
  const streamed = { ...REQUEST, ...TRY_KINDS.chat.streamed };
  const { curl, TypeScript, Python } = codeOf("chat", streamed, API);
  const body = /-d '([^]*)'$/.exec(curl)?.[1]?.replaceAll(`'\\''`, "'") ?? "";
  assert.deepEqual(JSON.parse(body), streamed);
  assert.ok(!/'/.test(curl.replaceAll(`'\\''`, "").replace(/-d '|'$/g, "")));
  const extra = `...{
    "enable_thinking": false,
    "odd": {"with space": [], "none": null}
  },
});`;
  assert.ok(TypeScript.includes(extra), TypeScript);
  assert.match(TypeScript, /^ {2}stream: true,$/m);
  const odd = `  extra_body={
    "enable_thinking": False,
    "odd": {"with space": [], "none": None}
  },
)`;
  assert.ok(Python.includes(odd), Python);
  assert.match(Python, /^ {2}stream_options=\{"include_usage": True\},$/m);
  assert.match(Python, /"strict": True,\n/);
  for (const code of [curl, TypeScript, Python]) {
    assert.match(code, /OPENAI_API_KEY|OpenAI\(/);
    assert.ok(code.includes("-1.5e-9"), code);
  }
});

Deno.test("the code of an upload quotes the name of its file and its fields for a shell", () => {
  const request = { model: "m", file: `it's "a";b.mp3`, language: "en'" };
  const { curl, TypeScript, Python } = codeOf("transcription", request, API);
  assert.ok(curl.includes(`-F 'file=@"it'\\''s \\"a\\";b.mp3"'`), curl);
  assert.ok(curl.includes(`--form-string 'language=en'\\'''`), curl);
  const name = `"it's \\"a\\";b.mp3"`;
  assert.ok(TypeScript.includes(`  file: createReadStream(${name}),`));
  assert.ok(Python.includes(`  file=open(${name}, "rb"),`));
  const odd = { model: "m", input: "Hi", response_format: "$(id)" };
  assert.match(codeOf("speech", odd, API).curl, /--output speech\.mp3$/);
});

Deno.test("the code of messages is for Anthropic's packages, which add /v1 themselves", () => {
  const request = { model: "m", max_tokens: 7, messages: REQUEST.messages };
  const { curl, TypeScript, Python } = codeOf("messages", request, API);
  assert.ok(curl.startsWith(`curl ${API}/messages `), curl);
  for (const code of [TypeScript, Python]) {
    assert.match(code, /"https:\/\/api\.test"/);
    assert.match(code, /OPENAI_API_KEY/);
    assert.match(code, /client\.messages\.create/);
  }
  assert.match(codeOf("responses", request, API).Python, /OpenAI\(/);
});

Deno.test("the code of other forms of a chat prints the text as it arrives", () => {
  const request = { model: "m", stream: true };
  const responses = codeOf("responses", request, API);
  const messages = codeOf("messages", request, API);
  for (const { curl, TypeScript, Python } of [responses, messages]) {
    assert.match(curl, /^curl -N /);
    assert.match(TypeScript, /for await \(const event of stream\)/);
    assert.match(Python, /^for event in stream:$/m);
    assert.match(Python, /^ {2}stream=True,$/m);
  }
  assert.match(responses.TypeScript, /response\.output_text\.delta/);
  assert.match(messages.TypeScript, /text_delta/);
});
