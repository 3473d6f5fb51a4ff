/** How `complete()` fails, for each fault of a model server. */
import assert from "node:assert/strict";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import {
  type ScriptedServer,
  type Step,
} from "../../../tests/support/model_servers/scripted_server.ts";
import {
  choiceChunk,
  chunk,
  CLOSE,
  event,
  head,
  jsonResponse,
  PAUSE,
  STALL,
  streamHead,
  streamResponse,
  typed,
} from "../../../tests/support/model_servers/model_answers.ts";
import {
  UpstreamError,
  type UpstreamFault,
} from "@gateway/shared/upstream/http/errors";
import { until } from "../../../tests/support/wait_for.ts";
import {
  API_KEY,
  assertFault,
  chat,
  complete,
  firstSteps,
  half,
  HEADER_SECRET,
  hello,
  onePacket,
  payloads,
  rig,
  textOf,
} from "./openai_fixture.ts";

/** The status that a caller gets for a fault, if not 502. */
const STATUS: Partial<Record<UpstreamFault, number>> = {
  request: 400,
  overloaded: 503,
  timeout: 504,
  deadline: 504,
};
type Failure = {
  name: string;
  reply: Iterable<Step>;
  more?: {
    stream?: false;
    n?: number;
    deadlines?: Partial<BackendConfig["deadlines"]>;
    text?: string;
  };
};
const WHOLE = { stream: false } as const;
const HELLO = { text: "Hello" };
const quoting = { error: { message: `${API_KEY} ${HEADER_SECRET}` } };
const say = (data: unknown) => chunk(event(data));
const refusal = (status: number) => jsonResponse(quoting, { status });
const cutEvent = chunk(event(hello).slice(0, 20));
const outOfMemory = { error: { message: `Out of memory at ${API_KEY}` } };
const roleOnly = say(choiceChunk({ role: "assistant", content: "" }));
const ping = [PAUSE, chunk(": ping\n\n")];
const comments = Array.from({ length: 25 }, () => ping).flat();
const endless = Array<Step>(10).fill(chunk("x".repeat(10_000)));
function* endlessWords(): Iterable<Step> {
  yield streamHead();
  for (;;) yield* [PAUSE, say(choiceChunk({ content: "" }))];
}
const MOVED = [
  head(
    `307 Moved\r\nlocation: https://u:${API_KEY}@127.0.0.1/v2?k=${API_KEY}\r\ncontent-length: 0`,
  ),
];
const [BAD, BUSY] = [
  head("400 Bad\r\ntransfer-encoding: chunked"),
  head("503 Busy\r\ncontent-length: 5"),
];
const wholeIn = (deadlines: Partial<BackendConfig["deadlines"]>) => (
  { ...WHOLE, deadlines }
);

const failures: { [fault in UpstreamFault]?: Failure[] } = {
  request: [
    {
      name: "a refusal of the request that quotes the key",
      reply: refusal(400),
    },
    { name: "a refusal with an endless body", reply: [BAD, ...endless, STALL] },
    { name: "a refusal whose body is cut", reply: [half("400 Bad"), CLOSE] },
    // As servers answer that know no `n`; `chunk_faults_test.ts` has the text.
    {
      name: "one choice where two were asked for, in one packet",
      reply: [
        onePacket(streamResponse(payloads)),
      ],
      more: { n: 2 },
    },
  ],
  credentials: [{
    name: "a refusal of the key that quotes it",
    reply: refusal(401),
  }],
  redirect: [{ name: "a redirect", reply: MOVED }],
  server_error: [
    {
      name: "an error frame after the first words",
      reply: [...firstSteps, say(outOfMemory)],
      more: HELLO,
    },
  ],
  overloaded: [
    {
      name: "a refusal whose body never comes",
      reply: [BUSY, STALL],
      more: {
        deadlines: { connect_ms: 50 },
      },
    },
  ],
  invalid: [
    {
      name: "a page instead of an answer",
      reply: [typed("text/html"), chunk("<p>Hi")],
    },
    {
      name: "nothing but garbage",
      reply: [onePacket(streamResponse(["garbage"]))],
    },
  ],
  unreachable: [{ name: "a hang-up without a word", reply: [CLOSE] }],
  truncated: [
    {
      name: "a connection cut after the first words",
      reply: [...firstSteps, CLOSE],
      more: HELLO,
    },
    {
      name: "an event cut in the middle",
      reply: [...firstSteps, cutEvent, CLOSE],
      more: HELLO,
    },
    {
      name: "a whole answer that is cut",
      reply: [half("200 OK"), CLOSE],
      more: WHOLE,
    },
  ],
  timeout: [
    {
      name: "no answer",
      reply: [STALL],
      more: { deadlines: { first_token_ms: 50 } },
    },
    {
      name: "no content after the role",
      reply: [streamHead(), roleOnly, STALL],
      more: {
        deadlines: { first_token_ms: 50, between_tokens_ms: 5_000 },
      },
    },
    {
      name: "nothing but comments after the first words",
      reply: [...firstSteps, ...comments],
      more: {
        deadlines: { between_tokens_ms: 100 },
        ...HELLO,
      },
    },
    {
      name: "a whole answer that stops coming",
      reply: [half("200 OK"), STALL],
      more: wholeIn({ between_tokens_ms: 50 }),
    },
  ],
  deadline: [
    {
      name: "words without end",
      reply: endlessWords(),
      more: { deadlines: { total_ms: 150 } },
    },
    {
      name: "no whole answer",
      reply: [STALL],
      more: wholeIn({ total_ms: 50, first_token_ms: 5 }),
    },
  ],
};

for (const [fault, cases] of Object.entries(failures)) {
  for (const { name, reply, more = {} } of cases) {
    Deno.test(`complete() fails with ${fault} for ${name}`, async () => {
      const { stream = true, n = 1, deadlines = {}, text = "" } = more;
      await using r = rig(() => reply, { deadlines });
      const { output, error } = await complete(r.backend, chat({ stream, n }));
      assert.equal(textOf(output), text);
      assert.ok(error instanceof UpstreamError, String(error));
      assert.equal(error.fault, fault);
      assert.equal(error.status, STATUS[error.fault] ?? 502);
      assertNoSecret(error, r.server);
      r.backend.close();
      await until(() => r.server.openConnections === 0);
    });
  }
}

/**
 * Nothing in an error, for the caller or for the log, holds a credential; nothing for
 * the caller holds an address.
 */
function assertNoSecret(error: UpstreamError, server: ScriptedServer): void {
  const text = JSON.stringify(error.toBody()) + error.message + error.param;
  const logged = Deno.inspect(error, { depth: 10 });
  for (const secret of [API_KEY, HEADER_SECRET]) {
    assert.ok(!text.includes(secret), text);
    assert.ok(!logged.includes(secret), logged);
  }
  assert.ok(!text.includes("127.0.0.1"), text);
  assert.ok(!text.includes(String(server.port)), text);
}

Deno.test("complete() fails with unreachable, and no address in the message, where nobody listens", async () => {
  const r = rig(() => []);
  await r.server[Symbol.asyncDispose]();
  const { error } = await complete(r.backend, chat({ stream: true }));
  r.backend.close();
  const failure = assertFault(error, "unreachable");
  assertNoSecret(failure, r.server);
  // SDKs repeat a 502 by themselves.
  assert.equal(failure.retryAfterMs, 1_000);
});

Deno.test("complete() names the target of a redirect for the log, and follows none", async () => {
  await using r = rig(() => MOVED);
  const { error } = await complete(r.backend, chat({ stream: true }));
  const { logText } = assertFault(error, "redirect");
  assert.match(logText, /status 307 and redirects to https:\/\/127.0.0.1\/v2;/);
  assert.equal(r.server.requests.length, 1);
});
