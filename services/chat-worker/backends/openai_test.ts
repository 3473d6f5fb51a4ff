import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import { type DialectName, DIALECTS } from "@gateway/shared/models/dialects";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { chatCompletionSchema } from "@gateway/shared/openai/completion";
import {
  backendAt,
  type Reply,
  type ScriptedServer,
  startScriptedServer,
  type Step,
} from "../../../tests/support/scripted_server.ts";
import {
  chatReply,
  choiceChunk,
  chunk,
  CLOSE,
  event,
  head,
  jsonResponse,
  lastChunk,
  PAUSE,
  STALL,
  streamHead,
  streamResponse,
  typed,
  usageChunk,
} from "../../../tests/support/model_answers.ts";
import {
  poolOf,
  recordCall,
  slowCall,
} from "../../../tests/support/recorded_call.ts";
import { linesOf, newAnswer, requestWith, seen } from "./answer_fixture.ts";
import { AnswerMemory } from "@gateway/shared/worker/answer_memory";
import {
  UpstreamError,
  type UpstreamFault,
} from "@gateway/shared/upstream/errors";
import { OpenAiBackend, runCompletion } from "./openai.ts";
import { until, waitFor } from "../../../tests/support/wait_for.ts";

const API_KEY = "upstream-key-0123456789";
const HEADER_SECRET = "header-secret-0123456789";
const MIB = 1024 * 1024;

function rig(
  reply: Reply,
  { dialect = "dashscope", deadlines }: {
    dialect?: DialectName;
    deadlines?: Partial<BackendConfig["deadlines"]>;
  } = {},
) {
  const server = startScriptedServer({ reply });
  const headers = { "x-team": HEADER_SECRET };
  const change = { headers, dialect: DIALECTS[dialect], deadlines };
  const backend = new OpenAiBackend({
    config: backendAt(server.baseUrl, change),
    publicModel: "ours",
    apiKey: API_KEY,
    now: monotonicNow,
  });
  return {
    server,
    backend,
    async [Symbol.asyncDispose]() {
      backend.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

function chat(stream: boolean, more: Partial<ChatRequest> = {}): ChatRequest {
  return requestWith({ stream, include_usage: false, ...more });
}

/** Returns what was {@link seen} of a stream, or the contents of a whole answer. */
async function complete(
  backend: OpenAiBackend,
  request: ChatRequest,
  call = recordCall(),
) {
  const { answer } = newAnswer(request, call);
  let error: unknown = null;
  try {
    answer.end(await backend.complete(answer));
  } catch (thrown) {
    error = thrown;
  }
  const whole = () =>
    linesOf(call).map((line) => chatCompletionSchema.parse(line))
      .flatMap(({ choices }) => choices.map(({ message }) => message.content));
  return { seen: request.stream ? seen(call) : whole(), error, call };
}

function textOf(seen: readonly unknown[]): string {
  return seen.filter((each) => typeof each === "string" && !each.includes("["))
    .join("");
}

function assertFault(error: unknown, fault: UpstreamFault): UpstreamError {
  assert.ok(error instanceof UpstreamError, String(error));
  assert.equal(error.fault, fault);
  return error;
}

const words = ["Hel", "lo ", "wörld 😀"];
const spoken = [...words, "[stop]"];
const payloads = [
  choiceChunk({ role: "assistant", content: "" }),
  ...words.map((content) => choiceChunk({ content })),
  choiceChunk({}, "stop"),
  usageChunk(1, 3),
];

const body = payloads.map(event).join("") + event("[DONE]");

function onePacket(steps: readonly Step[]): Step {
  const sends = steps.map((step) =>
    "send" in step ? Buffer.from(step.send) : Buffer.of()
  );
  return { send: Buffer.concat(sends) };
}

const streamOf = (text: string, head = streamHead()) => [
  head,
  chunk(text),
  lastChunk,
];
const chunks = payloads.map(event).join("");
const OPENROUTER = "data:\n\n: OPENROUTER PROCESSING\n\n";

const hello = choiceChunk({ content: "Hello" });
/** The first words, in a packet of their own. */
const begun: Step[] = [streamHead(), chunk(event(hello)), PAUSE];
const stop = chunk(event(choiceChunk({}, "stop")));
const finished: Step[] = [...begun, stop, PAUSE];
const said = ["Hello", "[stop]"];

const wholeStreams: [name: string, reply: Step[], seen?: string[]][] = [
  ["all in one packet", [onePacket(streamResponse(payloads))]],
  [
    "OpenRouter's comments, and empty data",
    streamOf(body.replaceAll("data:", `${OPENROUTER}data:`)),
  ],
  ["no [DONE]", streamOf(chunks)],
  ["no blank line after the last chunk", streamOf(chunks.trimEnd())],
  ["more after [DONE]", streamOf(`${body}data: garbage\n\n`)],
  ["no content type", streamOf(body, typed("application/octet-stream"))],
  ["a hang-up after the finish reason", [...finished, CLOSE], said],
  ["silence after the finish reason", [...finished, STALL], said],
];

for (const [name, reply, expected = spoken] of wholeStreams) {
  Deno.test(`complete() reads a stream with ${name}`, async () => {
    const deadlines = { between_tokens_ms: 1_000 };
    await using r = rig(() => reply, { deadlines });
    const { seen, error } = await complete(r.backend, chat(true));
    assert.equal(error, null);
    assert.deepEqual(seen, expected);
  });
}

Deno.test("complete() accepts a whole answer and a stream, whichever was requested, and uses the connection again, also after a refusal", async () => {
  const answerWhole = chatReply({ words });
  await using r = rig((request) => {
    if (request.number === 3) return jsonResponse({}, { status: 400 });
    return request.number < 3
      ? answerWhole({ json: () => ({ stream: false }) })
      : streamResponse(payloads);
  });
  for (const stream of [false, true, null, true, false]) {
    const request = chat(stream === true);
    const { seen, error, call } = await complete(r.backend, request);
    const asked = r.server.requests.at(-1)?.json();
    assert.equal(Reflect.get(Object(asked), "stream"), stream === true);
    if (stream === null) continue;
    assert.equal(error, null);
    assert.equal(textOf(seen), words.join(""));
    assert.equal(call.tokens, 3);
  }
  assert.equal(r.server.connections, 1);
});

/** The status that a caller gets for a fault, if not 502. */
const STATUS: Partial<Record<UpstreamFault, number>> = {
  request: 400,
  overloaded: 503,
  timeout: 504,
  deadline: 504,
};
type Failure = [
  name: string,
  reply: Iterable<Step>,
  more?: {
    stream?: false;
    n?: number;
    deadlines?: Partial<BackendConfig["deadlines"]>;
    text?: string;
  },
];
const WHOLE = { stream: false } as const;
const HELLO = { text: "Hello" };
const quoting = { error: { message: `${API_KEY} ${HEADER_SECRET}` } };
const say = (data: unknown) => chunk(event(data));
const half = (status: string) =>
  head(`${status}\r\ncontent-type: text/json\r\ncontent-length: 50`, "{");
const refusal = (status: number) => jsonResponse(quoting, { status });
const cutEvent = chunk(event(hello).slice(0, 20));
const helloGarbage = onePacket([say(hello), say("garbage")]);
const outOfMemory = { error: { message: `Out of memory at ${API_KEY}` } };
const roleOnly = say(choiceChunk({ role: "assistant", content: "" }));
const ping = [PAUSE, chunk(": ping\n\n")];
const comments = Array.from({ length: 25 }, () => ping).flat();
const endless = Array<Step>(10).fill(chunk("x".repeat(10_000)));
function* endlessWords(): Iterable<Step> {
  yield streamHead();
  for (;;) yield* [PAUSE, say(choiceChunk({ content: "" }))];
}
const [BAD, BUSY] = [
  head("400 Bad\r\ntransfer-encoding: chunked"),
  head("503 Busy\r\ncontent-length: 5"),
];
const wholeIn = (deadlines: Partial<BackendConfig["deadlines"]>) => (
  { ...WHOLE, deadlines }
);

const failures: { [fault in UpstreamFault]?: Failure[] } = {
  request: [
    ["a refusal of the request that quotes the key", refusal(400)],
    ["a refusal with an endless body", [BAD, ...endless, STALL]],
    ["a refusal whose body is cut", [half("400 Bad"), CLOSE]],
    // As servers answer that know no `n`; `chunk_reader_test.ts` has the text.
    ["one choice where two were asked for, in one packet", [
      onePacket(streamResponse(payloads)),
    ], { n: 2 }],
  ],
  credentials: [["a refusal of the key that quotes it", refusal(401)]],
  server_error: [
    [
      "an error frame after the first words",
      [...begun, say(outOfMemory)],
      HELLO,
    ],
  ],
  overloaded: [
    ["a refusal whose body never comes", [BUSY, STALL], {
      deadlines: { connect_ms: 50 },
    }],
  ],
  invalid: [
    ["a page instead of an answer", [typed("text/html")]],
    ["garbage in the packet of the first words", [
      onePacket(streamResponse([hello, "garbage"])),
    ]],
    ["garbage after the first words", [...begun, helloGarbage], {
      text: "HelloHello",
    }],
  ],
  unreachable: [["a hang-up without a word", [CLOSE]]],
  truncated: [
    ["a connection cut after the first words", [...begun, CLOSE], HELLO],
    ["an event cut in the middle", [...begun, cutEvent, CLOSE], HELLO],
    ["a whole answer that is cut", [half("200 OK"), CLOSE], WHOLE],
  ],
  timeout: [
    ["no answer", [STALL], { deadlines: { first_token_ms: 50 } }],
    ["no content after the role", [streamHead(), roleOnly, STALL], {
      deadlines: { first_token_ms: 50, between_tokens_ms: 5_000 },
    }],
    ["nothing but comments after the first words", [...begun, ...comments], {
      deadlines: { between_tokens_ms: 100 },
      ...HELLO,
    }],
    [
      "a whole answer that stops coming",
      [half("200 OK"), STALL],
      wholeIn({ between_tokens_ms: 50 }),
    ],
  ],
  deadline: [
    ["words without end", endlessWords(), { deadlines: { total_ms: 150 } }],
    ["no whole answer", [STALL], wholeIn({ total_ms: 50, first_token_ms: 5 })],
  ],
};

for (const [fault, cases] of Object.entries(failures)) {
  for (const [name, reply, more = {}] of cases) {
    Deno.test(`complete() fails with ${fault} for ${name}`, async () => {
      const { stream = true, n = 1, deadlines = {}, text = "" } = more;
      await using r = rig(() => reply, { deadlines });
      const { seen, error } = await complete(r.backend, chat(stream, { n }));
      assert.equal(textOf(seen), text);
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
  const told = JSON.stringify(error.toBody()) + error.message + error.param;
  const logged = Deno.inspect(error, { depth: 10 });
  for (const secret of [API_KEY, HEADER_SECRET]) {
    assert.ok(!told.includes(secret), told);
    assert.ok(!logged.includes(secret), logged);
  }
  assert.ok(!told.includes("127.0.0.1"), told);
  assert.ok(!told.includes(String(server.port)), told);
}

Deno.test("complete() fails with unreachable, and no address in the message, where nobody listens", async () => {
  const r = rig(() => []);
  await r.server[Symbol.asyncDispose]();
  const { error } = await complete(r.backend, chat(true));
  r.backend.close();
  const failure = assertFault(error, "unreachable");
  assertNoSecret(failure, r.server);
  // SDKs repeat a 502 by themselves.
  assert.equal(failure.retryAfterMs, 1_000);
});

Deno.test("complete() sends its request again if the server closes an idle connection instead of answering", async () => {
  await using r = rig(({ number }) =>
    number % 2 === 0 ? [CLOSE] : streamResponse(payloads)
  );
  for (const connections of [1, 2, 3]) {
    const { error } = await complete(r.backend, chat(true));
    assert.equal(error, null);
    assert.equal(r.server.connections, connections);
  }
});

for (const stream of [true, false]) {
  Deno.test(`complete() sends three requests for n = 3 to a server of one choice, ${stream ? "streamed" : "whole"}`, async () => {
    const reply = chatReply({ words, choicesMax: 1 });
    await using r = rig(reply, { dialect: "llama.cpp" });
    const request = chat(stream, { n: 3, seed: 7, include_usage: true });
    const { seen, error } = await complete(r.backend, request);
    assert.equal(error, null);
    if (stream) {
      const expected = ["", "1:", "2:"].flatMap((index) =>
        spoken.map((each) => index + each)
      );
      assert.deepEqual(seen.toSorted(), [...expected, "3+9"].toSorted());
      assert.equal(seen.at(-1), "3+9");
    } else assert.deepEqual(seen, new Array(3).fill(words.join("")));
    const asked = r.server.requests.map(({ body }) => JSON.parse(body));
    assert.deepEqual(asked.map(({ seed }) => seed).sort(), [7, 8, 9]);
    assert.ok(asked.every((body) => !("n" in body)));
  });
}

Deno.test("complete() ends all parallel requests for choices when one fails", async () => {
  await using r = rig(
    ({ number }) => [
      streamHead(),
      chunk(event(hello)),
      number === 2 ? CLOSE : STALL,
    ],
    { dialect: "ollama" },
  );
  const { error } = await complete(r.backend, chat(true, { n: 3 }));
  assertFault(error, "truncated");
  for (const number of [1, 3]) await (await r.server.request(number)).left;
});

const wholeAnswer = (bytes: number) => {
  const choices = [{ message: { content: "hi" }, finish_reason: "stop" }];
  return jsonResponse(JSON.stringify({ choices }).padEnd(bytes));
};

Deno.test("API10: complete() takes a whole answer of 32 MiB, and refuses a larger one, also if it comes as events", async () => {
  const piece = chunk(event(choiceChunk({ content: "x".repeat(MIB / 2) })));
  const events = [streamHead(), ...Array<Step>(80).fill(piece), lastChunk];
  const replies = [wholeAnswer(32 * MIB), wholeAnswer(32 * MIB + 1), events];
  await using r = rig(({ number }) => replies[number - 1] ?? []);
  const answer = () => complete(r.backend, chat(false));
  assert.deepEqual((await answer()).seen, ["hi"]);
  assertFault((await answer()).error, "invalid");
  assertFault((await answer()).error, "invalid");
});

Deno.test("API4: whole answers beyond the memory of the process are refused until others were passed on, and may be tried elsewhere", async () => {
  await using r = rig(() => wholeAnswer(MIB));
  const pool = poolOf(r.backend);
  const memory = new AnswerMemory(MIB);
  const run = (call = recordCall()) =>
    runCompletion(chat(false), call, { pool, memory });
  const { call, room } = slowCall();
  const first = run(call);
  await until(() => call.bytes > 0);
  await assert.rejects(run(), { name: "ApiError", code: "overloaded" });
  room.resolve();
  await first;
  assert.equal(memory.bytes, 0);
  await run();
});

// The other moments: tests/e2e/client_leaves_test.ts.
Deno.test("complete() closes the connection when it is aborted in the middle of a whole answer, or of a refusal", async () => {
  for (const status of ["200 OK", "500 Bad"]) {
    await using r = rig(() => [half(status), STALL]);
    const controller = new AbortController();
    const running = complete(r.backend, chat(false), recordCall(controller));
    const request = await r.server.request(1);
    await until(() => request.bytesSent > 0);
    controller.abort(new Error("Client left"));
    assert.match(String((await running).error), /Client left/);
    await request.left;
  }
});

Deno.test("complete() may pause after a read of a stream, unless it brought no word, many or the last", async () => {
  const ofBytes = (bytes: number) =>
    `${event(hello)}: `.padEnd(bytes - 1, "a") + "\n";
  const reads = [event(payloads[0]), event(hello), ": wait\n\n"]
    .concat(ofBytes(4_096), ofBytes(4_097), event(choiceChunk({}, "stop")));
  const steps = [
    streamHead(),
    ...reads.flatMap((text) => [chunk(text), PAUSE]),
  ];
  await using r = rig(() => [...steps, chunk(event("[DONE]")), lastChunk]);
  for (const [stream, pauses] of [[true, [1, 2]], [false, []]] as const) {
    const { error, call } = await complete(r.backend, chat(stream));
    assert.deepEqual([error, call.pauses], [null, pauses]);
  }
});

Deno.test("complete() does not read ahead of its reader, and no deadline but the total counts meanwhile", async () => {
  await using r = rig(function* () {
    yield streamHead();
    for (let i = 0; i < 2_000; i++) {
      yield chunk(event(choiceChunk({ content: "x".repeat(16 * 1024) })));
    }
    yield* [stop, lastChunk];
  }, { deadlines: { between_tokens_ms: 400 } });
  const { call, room } = slowCall();
  const completing = complete(r.backend, chat(true), call);
  const request = await r.server.request(1);
  const counts: number[] = [];
  await waitFor(() => {
    counts.unshift(request.bytesSent);
    return counts[0] === counts[100];
  }, { what: "the connections" });
  assert.ok(request.bytesSent < 16 * MIB, `${request.bytesSent}`);
  room.resolve();
  const { seen, error } = await completing;
  assert.equal(error, null);
  assert.equal(seen.length, 2_001);
});
