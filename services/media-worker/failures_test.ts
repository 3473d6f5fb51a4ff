// What model servers answer wrongly, slowly or not at all is a clear error, which says
// no secret; what was made before is charged.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { MediaRequest } from "@gateway/shared/openai/media";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import {
  chunk,
  CLOSE,
  event,
  head,
  jsonResponse,
  lastChunk,
  PAUSE,
  STALL,
  streamHead,
  typed,
} from "../../tests/support/model_servers/model_answers.ts";
import { recordContext } from "../../tests/support/model_servers/recorded_context.ts";
import {
  API_KEY,
  assertFault,
  CHARACTERS,
  eventsIn,
  IMAGE,
  namedEvent,
  SPEECH,
  SSE,
  sse,
  startServer,
  TRANSCRIPTION,
} from "./server_fixture.ts";

type Failure = {
  name: string;
  reply: Iterable<Step>;
  more?: {
    change?: object;
    deadlines?: Partial<BackendConfig["deadlines"]>;
    message?: RegExp;
    /** The parts that were passed on before: events, or bytes. */
    parts?: number;
  };
};
type Failures = { readonly [fault: string]: readonly Failure[] };

const STREAM = { change: SSE };
const PATIENCE = { first_token_ms: 50, between_tokens_ms: 5_000 };
const IMPATIENCE = { first_token_ms: 5_000, between_tokens_ms: 50 };
const SOON_OVER = {
  deadlines: { total_ms: 80, first_token_ms: 20, between_tokens_ms: 20 },
};
const error = { message: `No GPU for ${API_KEY}`, code: 500 };
const NO_GPU = { message: /^No GPU for \[redacted\]$/ };
const page = [typed("text/html"), chunk("<html>"), lastChunk];
/** To another server, which must not be called. */
const redirect = [
  head("307 Moved\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0"),
];
const cut = (length: number, body: string | Uint8Array) => [
  head(`200 OK\r\ncontent-length: ${length}`, body),
  PAUSE,
  CLOSE,
];
function* endless(type: string, start = ""): Iterable<Step> {
  yield* [typed(type), ...(start === "" ? [] : [chunk(start)])];
  for (;;) yield chunk("A".repeat(1024 * 1024));
}

const FIRST = Buffer.from([0, 255, 10, 13]);
const sound = (audio = FIRST.toBase64()) =>
  namedEvent({ type: "speech.audio.delta", audio });
const endlessEvent = endless(
  "text/event-stream",
  sound("").trim().slice(0, -2),
);
const heard: Step[] = [typed("audio/mpeg"), chunk(FIRST), PAUSE];
const heardEvents: Step[] = [streamHead(), chunk(sound()), PAUSE];
const cutEvent = chunk(sound().slice(0, 40));
const broken = namedEvent({ type: "speech.audio.error", error });
const AFTER = { parts: FIRST.length };
const STALLED = { ...AFTER, deadlines: IMPATIENCE };
const comments = Array.from({ length: 25 }, () => [": pi", "ng\n\n"]).flat()
  .flatMap((piece) => [chunk(piece), PAUSE]);
function* endlessSound(): Iterable<Step> {
  yield typed("audio/mpeg");
  for (;;) yield* [PAUSE, chunk(FIRST)];
}

const speech: Failures = {
  request: [
    {
      name: "a refusal",
      reply: jsonResponse({ detail: "Too fast" }, { status: 422 }),
      more: {
        message: /^Too fast$/,
      },
    },
  ],
  server_error: [
    {
      name: "an error with status 200",
      reply: jsonResponse({ error }),
      more: NO_GPU,
    },
    {
      name: "vLLM-Omni's error event",
      reply: sse(sound(), broken),
      more: AFTER,
    },
    {
      name: "an error event without a sound before",
      reply: sse(namedEvent({ type: "error" })),
    },
  ],
  invalid: [
    { name: "a page", reply: page },
    {
      name: "sound in an unknown coding",
      reply: [
        head("200 OK\r\ncontent-encoding: compress\r\ncontent-length: 1", "a"),
      ],
    },
    { name: "an event that is not JSON", reply: sse(event("garbage")) },
  ],
  unsupported: [
    { name: "JSON without sound", reply: jsonResponse({ ok: true }) },
    {
      name: "sound that is not base64",
      reply: sse(sound(), sound("*")),
      more: AFTER,
    },
    { name: "an event beyond the bound", reply: endlessEvent },
  ],
  redirect: [{ name: "a redirect", reply: redirect }],
  truncated: [
    { name: "no sound", reply: [typed("audio/mpeg"), lastChunk] },
    { name: "less sound than announced", reply: cut(9, FIRST), more: AFTER },
    {
      name: "events that are cut",
      reply: [...heardEvents, cutEvent, CLOSE],
      more: AFTER,
    },
    {
      name: "events without a last one",
      reply: sse(sound(), event("[DONE]")),
      more: AFTER,
    },
  ],
  timeout: [
    {
      name: "no sound after the head",
      reply: [typed("audio/mpeg"), STALL],
      more: {
        deadlines: PATIENCE,
      },
    },
    {
      name: "nothing but comments",
      reply: [streamHead(), ...comments],
      more: {
        deadlines: { ...PATIENCE, between_tokens_ms: 100 },
      },
    },
    { name: "sound that stalls", reply: [...heard, STALL], more: STALLED },
    {
      name: "events that stall",
      reply: [...heardEvents, STALL],
      more: STALLED,
    },
  ],
  deadline: [{
    name: "sound without end",
    reply: endlessSound(),
    more: {
      parts: NaN,
      deadlines: { total_ms: 150 },
    },
  }],
};

const partial = namedEvent({
  type: "image_generation.partial_image",
  b64_json: FIRST.toBase64(),
});
const PARTLY = { change: { ...SSE, fields: { partial_images: 1 } } };
const DRAWN = { ...PARTLY, parts: 1 };
const firstSteps: Step[] = [streamHead(), chunk(partial), PAUSE];
const json = (data: unknown) => jsonResponse({ created: 5, data });
const unsafe = { message: "Unsafe", type: "invalid_request_error" };

const pictures: Failures = {
  request: [
    {
      name: "an error with status 200",
      reply: jsonResponse({ error: unsafe }),
      more: {
        message: /^Unsafe$/,
      },
    },
  ],
  server_error: [
    {
      name: "an error event after a picture",
      reply: [...firstSteps, chunk(event({ error }))],
      more: {
        ...DRAWN,
        ...NO_GPU,
      },
    },
  ],
  invalid: [
    { name: "a page", reply: page },
    { name: "garbage", reply: jsonResponse("garbage") },
  ],
  unsupported: [
    { name: "a document without data", reply: jsonResponse({ images: [] }) },
    { name: "a picture without data", reply: json([{}]) },
    { name: "a picture that is not base64", reply: json([{ b64_json: "*" }]) },
    {
      name: "a picture with padding in the middle",
      reply: json([{ b64_json: "aa=a" }]),
    },
    { name: "a document beyond the bound", reply: endless("application/json") },
    {
      name: "an event beyond the bound",
      reply: endless("text/event-stream"),
      more: STREAM,
    },
  ],
  truncated: [
    { name: "no picture", reply: json([]) },
    {
      name: "no finished picture",
      reply: sse(partial, event("[DONE]")),
      more: DRAWN,
    },
    { name: "no finished picture for a document", reply: sse(partial) },
  ],
  timeout: [
    {
      name: "no event after the head",
      reply: [streamHead(), chunk(": ping\n\n"), STALL],
      more: {
        ...PARTLY,
        deadlines: PATIENCE,
      },
    },
  ],
  deadline: [{ name: "no document", reply: [STALL], more: SOON_OVER }],
};

const ONE_PART = { ...STREAM, parts: 1 };
const stepsOf = (event: string) => [streamHead(), chunk(event), PAUSE];
const delta = namedEvent({ type: "transcript.text.delta" });
const ofVllm = event({ choices: [{ delta: { content: "H" } }] });

const transcriptions: Failures = {
  server_error: [
    {
      name: "an error with status 200",
      reply: jsonResponse({ error: { message: "OOM" } }),
    },
  ],
  invalid: [
    { name: "a page", reply: page },
  ],
  unsupported: [
    { name: "JSON without a text", reply: jsonResponse({ words: [] }) },
    { name: "a text beyond the bound", reply: endless("text/plain") },
    {
      name: "an event beyond the bound",
      reply: endless("text/event-stream"),
      more: STREAM,
    },
  ],
  truncated: [
    {
      name: "events without a last one",
      reply: [...stepsOf(delta), lastChunk],
      more: ONE_PART,
    },
    {
      name: "events of vLLM that are cut",
      reply: [...stepsOf(ofVllm), CLOSE],
      more: ONE_PART,
    },
  ],
  timeout: [
    {
      name: "no event",
      reply: [streamHead(), STALL],
      more: { ...STREAM, deadlines: PATIENCE },
    },
  ],
  deadline: [{ name: "no text", reply: [STALL], more: SOON_OVER }],
};

interface Kind {
  kind: string;
  request: MediaRequest;
  /** What is charged for an answer that has begun. */
  units: number;
  failures: Failures;
}

const kinds: Kind[] = [
  { kind: "speech", request: SPEECH, units: CHARACTERS, failures: speech },
  { kind: "pictures", request: IMAGE, units: 0, failures: pictures },
  {
    kind: "transcriptions",
    request: TRANSCRIPTION,
    units: 2,
    failures: transcriptions,
  },
];
/** Two seconds by its size. */
const files = [
  { field: "file", name: "a", type: "", content: Buffer.alloc(16_000) },
];

for (const { kind, request, units, failures } of kinds) {
  for (const [fault, cases] of Object.entries(failures)) {
    for (const { name, reply, more = {} } of cases) {
      Deno.test(`${kind} fail with ${fault} for ${name}`, async () => {
        await using r = startServer(() => reply, {
          deadlines: more.deadlines,
        });
        const { parts = 0, change } = more;
        const changed = { ...request, ...change };
        const answer = await r.run(changed, recordContext({ files }));
        const failure = await assertFault(answer.error, fault, r);
        assert.match(failure.message, more.message ?? /./);
        assert.equal(answer.units, parts === 0 ? 0 : units);
        if (changed.stream) {
          assert.equal(eventsIn(answer.text).length, parts);
        } else if (!isNaN(parts)) {
          assert.deepEqual(answer.body, FIRST.subarray(0, parts));
        }
        assert.equal(r.memory.bytes, 0);
      });
    }
  }
}
