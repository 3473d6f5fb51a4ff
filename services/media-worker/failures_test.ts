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
import { recordCall } from "../../tests/support/model_servers/recorded_call.ts";
import {
  API_KEY,
  assertFault,
  CHARACTERS,
  eventsIn,
  IMAGE,
  named,
  SPEECH,
  SSE,
  sse,
  startServer,
  TRANSCRIPTION,
} from "./server_fixture.ts";

type Failure = [
  name: string,
  reply: Iterable<Step>,
  more?: {
    change?: object;
    deadlines?: Partial<BackendConfig["deadlines"]>;
    message?: RegExp;
    /** The parts that were passed on before: events, or bytes. */
    parts?: number;
  },
];
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
  named({ type: "speech.audio.delta", audio });
const endlessEvent = endless(
  "text/event-stream",
  sound("").trim().slice(0, -2),
);
const heard: Step[] = [typed("audio/mpeg"), chunk(FIRST), PAUSE];
const heardEvents: Step[] = [streamHead(), chunk(sound()), PAUSE];
const cutEvent = chunk(sound().slice(0, 40));
const broken = named({ type: "speech.audio.error", error });
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
    ["a refusal", jsonResponse({ detail: "Too fast" }, { status: 422 }), {
      message: /^Too fast$/,
    }],
  ],
  server_error: [
    ["an error with status 200", jsonResponse({ error }), NO_GPU],
    ["vLLM-Omni's error event", sse(sound(), broken), AFTER],
    [
      "an error event without a sound before",
      sse(named({ type: "error" })),
    ],
  ],
  invalid: [
    ["a page", page],
    ["sound in an unknown coding", [
      head("200 OK\r\ncontent-encoding: compress\r\ncontent-length: 1", "a"),
    ]],
    ["an event that is not JSON", sse(event("garbage"))],
  ],
  unsupported: [
    ["JSON without sound", jsonResponse({ ok: true })],
    ["sound that is not base64", sse(sound(), sound("*")), AFTER],
    ["an event beyond the bound", endlessEvent],
  ],
  redirect: [["a redirect", redirect]],
  truncated: [
    ["no sound", [typed("audio/mpeg"), lastChunk]],
    ["less sound than announced", cut(9, FIRST), AFTER],
    ["events that are cut", [...heardEvents, cutEvent, CLOSE], AFTER],
    ["events without a last one", sse(sound(), event("[DONE]")), AFTER],
  ],
  timeout: [
    ["no sound after the head", [typed("audio/mpeg"), STALL], {
      deadlines: PATIENCE,
    }],
    ["nothing but comments", [streamHead(), ...comments], {
      deadlines: { ...PATIENCE, between_tokens_ms: 100 },
    }],
    ["sound that stalls", [...heard, STALL], STALLED],
    ["events that stall", [...heardEvents, STALL], STALLED],
  ],
  deadline: [["sound without end", endlessSound(), {
    parts: NaN,
    deadlines: { total_ms: 150 },
  }]],
};

const partial = named({
  type: "image_generation.partial_image",
  b64_json: FIRST.toBase64(),
});
const PARTLY = { change: { ...SSE, fields: { partial_images: 1 } } };
const DRAWN = { ...PARTLY, parts: 1 };
const drawn: Step[] = [streamHead(), chunk(partial), PAUSE];
const json = (data: unknown) => jsonResponse({ created: 5, data });
const unsafe = { message: "Unsafe", type: "invalid_request_error" };

const pictures: Failures = {
  request: [
    ["an error with status 200", jsonResponse({ error: unsafe }), {
      message: /^Unsafe$/,
    }],
  ],
  server_error: [
    ["an error event after a picture", [...drawn, chunk(event({ error }))], {
      ...DRAWN,
      ...NO_GPU,
    }],
  ],
  invalid: [
    ["a page", page],
    ["garbage", jsonResponse("garbage")],
  ],
  unsupported: [
    ["a document without data", jsonResponse({ images: [] })],
    ["a picture without data", json([{}])],
    ["a picture that is not base64", json([{ b64_json: "*" }])],
    ["a picture with padding in the middle", json([{ b64_json: "aa=a" }])],
    ["a document beyond the bound", endless("application/json")],
    ["an event beyond the bound", endless("text/event-stream"), STREAM],
  ],
  truncated: [
    ["no picture", json([])],
    ["no finished picture", sse(partial, event("[DONE]")), DRAWN],
    ["no finished picture for a document", sse(partial)],
  ],
  timeout: [
    ["no event after the head", [streamHead(), chunk(": ping\n\n"), STALL], {
      ...PARTLY,
      deadlines: PATIENCE,
    }],
  ],
  deadline: [["no document", [STALL], SOON_OVER]],
};

const SAID = { ...STREAM, parts: 1 };
const said = (event: string) => [streamHead(), chunk(event), PAUSE];
const delta = named({ type: "transcript.text.delta" });
const ofVllm = event({ choices: [{ delta: { content: "H" } }] });

const transcriptions: Failures = {
  server_error: [
    ["an error with status 200", jsonResponse({ error: { message: "OOM" } })],
  ],
  invalid: [
    ["a page", page],
  ],
  unsupported: [
    ["JSON without a text", jsonResponse({ words: [] })],
    ["a text beyond the bound", endless("text/plain")],
    ["an event beyond the bound", endless("text/event-stream"), STREAM],
  ],
  truncated: [
    ["events without a last one", [...said(delta), lastChunk], SAID],
    ["events of vLLM that are cut", [...said(ofVllm), CLOSE], SAID],
  ],
  timeout: [
    ["no event", [streamHead(), STALL], { ...STREAM, deadlines: PATIENCE }],
  ],
  deadline: [["no text", [STALL], SOON_OVER]],
};

interface Kind {
  kind: string;
  request: MediaRequest;
  /** What is charged for an answer that has begun. */
  made: number;
  failures: Failures;
}

const kinds: Kind[] = [
  { kind: "speech", request: SPEECH, made: CHARACTERS, failures: speech },
  { kind: "pictures", request: IMAGE, made: 0, failures: pictures },
  {
    kind: "transcriptions",
    request: TRANSCRIPTION,
    made: 2,
    failures: transcriptions,
  },
];
/** Two seconds by its size. */
const files = [
  { field: "file", name: "a", type: "", content: Buffer.alloc(16_000) },
];

for (const { kind, request, made, failures } of kinds) {
  for (const [fault, cases] of Object.entries(failures)) {
    for (const [name, reply, more = {}] of cases) {
      Deno.test(`${kind} fail with ${fault} for ${name}`, async () => {
        await using r = startServer(() => reply, {
          deadlines: more.deadlines,
        });
        const { parts = 0, change } = more;
        const changed = { ...request, ...change };
        const answer = await r.run(changed, recordCall({ files }));
        const failure = await assertFault(answer.error, fault, r);
        assert.match(failure.message, more.message ?? /./);
        assert.equal(answer.made, parts === 0 ? 0 : made);
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
