/** How `complete()` reads the answers of model servers. */
import assert from "node:assert/strict";
import { type Step } from "../../../tests/support/model_servers/scripted_server.ts";
import {
  chatReply,
  choiceChunk,
  chunk,
  CLOSE,
  event,
  jsonResponse,
  lastChunk,
  PAUSE,
  STALL,
  streamHead,
  streamResponse,
  typed,
} from "../../../tests/support/model_servers/model_answers.ts";
import {
  poolOf,
  recordContext,
  slowContext,
} from "../../../tests/support/model_servers/recorded_context.ts";

import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import { newAnswer } from "./answer/answer_fixture.ts";
import { runCompletion } from "./openai.ts";
import { until, waitFor } from "../../../tests/support/wait_for.ts";
import {
  assertFault,
  body,
  chat,
  complete,
  firstSteps,
  half,
  hello,
  MIB,
  onePacket,
  payloads,
  rig,
  spoken,
  textOf,
  words,
} from "./openai_fixture.ts";

const streamOf = (text: string, head = streamHead()) => [
  head,
  chunk(text),
  lastChunk,
];
const chunks = payloads.map(event).join("");
const OPENROUTER = "data:\n\n: OPENROUTER PROCESSING\n\n";

const stop = chunk(event(choiceChunk({}, "stop")));
const finished: Step[] = [...firstSteps, stop, PAUSE];
const output = ["Hello", "[stop]"];

const wholeStreams: { name: string; reply: Step[]; expected?: string[] }[] = [
  { name: "all in one packet", reply: [onePacket(streamResponse(payloads))] },
  {
    name: "OpenRouter's comments, and empty data",
    reply: streamOf(body.replaceAll("data:", `${OPENROUTER}data:`)),
  },
  { name: "no [DONE]", reply: streamOf(chunks) },
  {
    name: "no blank line after the last chunk",
    reply: streamOf(chunks.trimEnd()),
  },
  { name: "more after [DONE]", reply: streamOf(`${body}data: garbage\n\n`) },
  {
    name: "garbage between good chunks",
    reply: [...firstSteps, chunk(event("garbage")), stop, lastChunk],
    expected: output,
  },
  {
    name: "no content type",
    reply: streamOf(body, typed("application/octet-stream")),
  },
  {
    name: "a hang-up after the finish reason",
    reply: [...finished, CLOSE],
    expected: output,
  },
  {
    name: "silence after the finish reason",
    reply: [...finished, STALL],
    expected: output,
  },
];

for (const { name, reply, expected = spoken } of wholeStreams) {
  Deno.test(`complete() reads a stream with ${name}`, async () => {
    const deadlines = { between_tokens_ms: 1_000 };
    await using r = rig(() => reply, { deadlines });
    const { output, error } = await complete(r.backend, chat({ stream: true }));
    assert.equal(error, null);
    assert.deepEqual(output, expected);
  });
}

Deno.test("complete() accepts whole answers and streams, and uses the connection again", async () => {
  const answerWhole = chatReply({ words });
  await using r = rig((request) => {
    if (request.number === 3) return jsonResponse({}, { status: 400 });
    return request.number < 3
      ? answerWhole({ json: () => ({ stream: false }) })
      : streamResponse(payloads);
  });
  for (const stream of [false, true, null, true, false]) {
    const request = chat({ stream: stream === true });
    const { output, error, context } = await complete(r.backend, request);
    const sentRequest = r.server.requests.at(-1)?.json();
    assert.equal(Reflect.get(Object(sentRequest), "stream"), stream === true);
    if (stream === null) continue;
    assert.equal(error, null);
    assert.equal(textOf(output), words.join(""));
    assert.equal(context.tokens, 3);
  }
  assert.equal(r.server.connections, 1);
});

Deno.test("complete() sends its request again if the server closes an idle connection instead of answering", async () => {
  await using r = rig(({ number }) =>
    number % 2 === 0 ? [CLOSE] : streamResponse(payloads)
  );
  for (const connections of [1, 2, 3]) {
    const { error } = await complete(r.backend, chat({ stream: true }));
    assert.equal(error, null);
    assert.equal(r.server.connections, connections);
  }
});

for (const stream of [true, false]) {
  Deno.test(`complete() asks a server of one choice three times for n = 3, ${stream ? "streamed" : "whole"}`, async () => {
    const reply = chatReply({ words, choicesMax: 1 });
    await using r = rig(reply, { dialect: "llama.cpp" });
    const request = chat({ stream, n: 3, seed: 7, include_usage: true });
    const { output, error } = await complete(r.backend, request);
    assert.equal(error, null);
    if (stream) {
      const expected = ["", "1:", "2:"].flatMap((index) =>
        spoken.map((each) => index + each)
      );
      assert.deepEqual(output.toSorted(), [...expected, "3+9"].toSorted());
      assert.equal(output.at(-1), "3+9");
    } else assert.deepEqual(output, new Array(3).fill(words.join("")));
    const bodies = r.server.requests.map(({ body }) => JSON.parse(body));
    assert.deepEqual(bodies.map(({ seed }) => seed).sort(), [7, 8, 9]);
    assert.ok(bodies.every((body) => !("n" in body)));
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
  const { error } = await complete(r.backend, chat({ stream: true, n: 3 }));
  assertFault(error, "truncated");
  for (const number of [1, 3]) await (await r.server.request(number)).left;
});

const wholeAnswer = (bytes: number) => {
  const choices = [{ message: { content: "hi" }, finish_reason: "stop" }];
  return jsonResponse(JSON.stringify({ choices }).padEnd(bytes));
};

Deno.test("API10: complete() takes a whole answer of 32 MiB and refuses a larger one, also as events", async () => {
  const piece = chunk(event(choiceChunk({ content: "x".repeat(MIB / 2) })));
  const events = [streamHead(), ...Array<Step>(80).fill(piece), lastChunk];
  const replies = [wholeAnswer(32 * MIB), wholeAnswer(32 * MIB + 1), events];
  await using r = rig(({ number }) => replies[number - 1] ?? []);
  const answer = () => complete(r.backend, chat({ stream: false }));
  assert.deepEqual((await answer()).output, ["hi"]);
  assertFault((await answer()).error, "unsupported");
  assertFault((await answer()).error, "unsupported");
});

Deno.test("API4: whole answers beyond the memory of the process wait for a second, then are refused", async () => {
  await using r = rig(() => wholeAnswer(MIB));
  const pool = poolOf(r.backend);
  let nowMs = 0;
  const memory = new WorkerMemory(4 * MIB, () => nowMs);
  const run = (context = recordContext()) =>
    runCompletion(chat({ stream: false }), context, {
      pool,
      memory: memory.openJob(),
    });
  const { context, room } = slowContext();
  const first = run(context);
  await until(() => context.bytes > 0);
  const refused = run();
  await until(() => memory.isFull);
  memory.tick();
  assert.ok(memory.isFull);
  nowMs = 1_000;
  memory.tick();
  await assert.rejects(refused, { name: "ApiError", code: "overloaded" });
  const patient = run();
  await until(() => memory.isFull);
  room.resolve();
  await Promise.all([first, patient]);
  assert.equal(memory.bytes, 0);
});

// The other moments: tests/e2e/client_leaves_test.ts.
Deno.test("complete() closes the connection when it is aborted in the middle of a whole answer, or of a refusal", async () => {
  for (const status of ["200 OK", "500 Bad"]) {
    await using r = rig(() => [half(status), STALL]);
    const controller = new AbortController();
    const running = complete(
      r.backend,
      chat({ stream: false }),
      recordContext(controller),
    );
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
    const { error, context } = await complete(r.backend, chat({ stream }));
    assert.deepEqual([error, context.pauses], [null, pauses]);
  }
});

/** Long enough for a busy machine to read on. */
const PAUSE_MS_MAX = 1_500;

Deno.test("complete() does not read ahead of its reader, and no deadline but the total counts meanwhile", async () => {
  await using r = rig(function* () {
    yield streamHead();
    for (let i = 0; i < 2_000; i++) {
      yield chunk(event(choiceChunk({ content: "x".repeat(16 * 1024) })));
    }
    yield* [stop, lastChunk];
  }, { deadlines: { between_tokens_ms: PAUSE_MS_MAX } });
  const { context, room } = slowContext();
  const completing = complete(r.backend, chat({ stream: true }), context);
  const request = await r.server.request(1);
  let [pieces, sinceMs] = [-1, 0];
  // The reader pauses for longer than the server may.
  await waitFor(() => {
    if (pieces !== request.bytesSent) sinceMs = performance.now();
    pieces = request.bytesSent;
    return performance.now() - sinceMs > PAUSE_MS_MAX;
  }, { what: "the connections" });
  assert.ok(request.bytesSent < 16 * MIB, `${request.bytesSent}`);
  room.resolve();
  const { output, error } = await completing;
  assert.equal(error, null);
  assert.equal(output.length, 2_001);
});

Deno.test("complete() says whether the first token has come, or the whole answer at once", async () => {
  for (const asks of [true, false]) {
    for (const sends of [true, false]) {
      const reply = chatReply({ words: ["Hel", "lo"] });
      await using r = rig(() => reply({ json: () => ({ stream: sends }) }));
      const { answer } = newAnswer(chat({ stream: asks }), recordContext());
      const began: unknown[] = [];
      answer.progress.onBegun = (how) => void began.push(how);
      await r.backend.complete(answer);
      assert.deepEqual(
        began,
        [sends ? undefined : "whole"],
        `${asks} ${sends}`,
      );
    }
  }
});
