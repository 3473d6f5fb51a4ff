// What holds for every kind of request: clients that leave, or do not read, and what
// a pool of engines repeats.
import assert from "node:assert/strict";
import type { MediaRequest } from "@gateway/shared/openai/media";
import { monotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "@gateway/shared/upstream/errors";
import { BackendPool } from "@gateway/shared/upstream/pool";
import type { Step } from "../../tests/support/fake_model_server.ts";
import {
  chunk,
  jsonResponse,
  lastChunk,
  streamHead,
} from "../../tests/support/model_answers.ts";
import { startStopwatch, until } from "../../tests/support/wait_for.ts";
import {
  CHARACTERS,
  CLOSE,
  head,
  imageWith,
  named,
  recordCall,
  run,
  speechWith,
  STALL,
  startEngine,
} from "./engine_fixture.ts";
import { runMedia } from "./media.ts";

const KIB = 1024;
const MIB = KIB * KIB;
const SSE = { stream: true } as const;
const SOUND = new Uint8Array(16 * KIB).fill(7);
const PICTURE = SOUND.toBase64();
const typed = (type: string): Step =>
  streamHead({ headers: { "content-type": type } });
const delta = named({ type: "speech.audio.delta", audio: PICTURE });
const partial = named({
  type: "image_generation.partial_image",
  b64_json: PICTURE,
});
const completed = named({
  type: "image_generation.completed",
  b64_json: PICTURE,
});
const partly = imageWith({ ...SSE, partial_images: 3 });

/** The guarantee: a client that leaves is noticed at the engine within 100 ms. */
const NOTICED_MS = 100;
const moments: [
  name: string,
  request: MediaRequest,
  reply: Step[],
  hasBegun: boolean,
][] = [
  ["before the first sound", speechWith(), [STALL], false],
  [
    "within sound",
    speechWith(),
    [typed("audio/mpeg"), chunk(SOUND), STALL],
    true,
  ],
  [
    "within events of sound",
    speechWith(SSE),
    [streamHead(), chunk(delta), STALL],
    true,
  ],
  ["before a document", imageWith(), [STALL], false],
  [
    "within a document",
    imageWith(),
    [head("200 OK\r\ncontent-length: 50", "{"), STALL],
    false,
  ],
  ["after a picture", partly, [streamHead(), chunk(partial), STALL], true],
  [
    "while it fetches a picture",
    imageWith(),
    jsonResponse({ data: [{ url: "/a" }] }),
    false,
  ],
];

for (const [name, request, reply, hasBegun] of moments) {
  Deno.test(`an engine is left within ${NOTICED_MS} ms by a client that leaves ${name}`, async () => {
    await using r = startEngine((asked) =>
      asked.method === "GET" ? [STALL] : reply
    );
    const controller = new AbortController();
    const call = recordCall(controller.signal);
    const running = run(r.engine, request, call);
    const asked = await r.server.request(name.includes("fetches") ? 2 : 1);
    await until(() => (call.bytes > SOUND.length) === hasBegun);
    using watch = startStopwatch();
    controller.abort(new Error("Client left"));
    assert.match(String((await running).error), /Client left/);
    await asked.left;
    assert.ok(watch.ms < NOTICED_MS, `Noticed after ${watch.ms} ms`);
    await until(() => r.server.openConnections === 0);
  });
}

function* many(start: Step, each: Step, end: Step[]): Iterable<Step> {
  yield start;
  for (let index = 0; index < 2_000; index++) yield each;
  yield* end;
}
const endless: [
  name: string,
  request: MediaRequest,
  reply: () => Iterable<Step>,
][] = [
  [
    "sound",
    speechWith(),
    () => many(typed("audio/mpeg"), chunk(SOUND), [lastChunk]),
  ],
  [
    "events of sound",
    speechWith(SSE),
    () =>
      many(streamHead(), chunk(delta), [
        chunk(named({ type: "speech.audio.done" })),
      ]),
  ],
  [
    "pictures",
    partly,
    () => many(streamHead(), chunk(partial), [chunk(completed)]),
  ],
];

for (const [name, request, reply] of endless) {
  Deno.test(`${name} are read as fast as the client takes them, and no deadline but the total counts meanwhile`, async () => {
    await using r = startEngine(reply, {
      deadlines: { between_tokens_ms: 400 },
    });
    const room = Promise.withResolvers<void>();
    const call = recordCall();
    const { write } = call;
    call.write = (...written) => write(...written) ?? room.promise;
    const running = run(r.engine, request, call);
    const asked = await r.server.request(1);
    let before = -1;
    let stable = 0;
    await until(() => {
      stable = asked.bytesSent === before ? stable + 1 : 0;
      before = asked.bytesSent;
      return stable === 100;
    });
    // What the connections hold: none of it is in this process.
    assert.ok(asked.bytesSent < 16 * MIB, `${asked.bytesSent}`);
    assert.ok(call.bytes < 2 * MIB, `${call.bytes}`);
    room.resolve();
    const { error } = await running;
    assert.equal(error, null);
    assert.ok(call.bytes > 2_000 * SOUND.length);
  });
}

Deno.test("a client that takes nothing and leaves ends the wait for it", async () => {
  await using r = startEngine(() =>
    many(typed("audio/mpeg"), chunk(SOUND), [lastChunk])
  );
  const controller = new AbortController();
  const room = Promise.withResolvers<void>();
  const call = recordCall(controller.signal);
  const { write } = call;
  call.write = (...written) => write(...written) ?? room.promise;
  const running = run(r.engine, speechWith(), call);
  await until(() => call.bytes > 0);
  controller.abort(new Error("Client left"));
  // As the job does.
  room.resolve();
  assert.match(String((await running).error), /Client left/);
  await until(() => r.server.openConnections === 0);
});

/** Two engines, the first of which is preferred. */
function startPool(first: Step[], second: Step[]) {
  const engines = [first, second].map((reply, preference) =>
    startEngine(() => reply, {
      members: { preference, name: `e${preference}` },
    })
  );
  const pool = new BackendPool({
    backends: engines.map(({ engine }) => engine),
    now: monotonicNow,
    random: () => 0.5,
    sleep: () => Promise.resolve(),
    onAttempt: () => {},
  });
  return {
    pools: new Map([["ours", pool]]),
    requests: () => engines.map(({ server }) => server.requests.length),
    async [Symbol.asyncDispose]() {
      for (const engine of engines) await engine[Symbol.asyncDispose]();
    },
  };
}

const sound = [head("200 OK\r\ncontent-length: 1", "x")];
const document = jsonResponse({ data: [{ b64_json: PICTURE }] });
const repeats: [
  name: string,
  request: MediaRequest,
  first: Step[],
  second: Step[],
  made: number,
][] = [
  ["speech that is refused", speechWith(), [CLOSE], sound, CHARACTERS],
  [
    "speech without sound",
    speechWith(),
    [typed("audio/mpeg"), lastChunk],
    sound,
    CHARACTERS,
  ],
  [
    "pictures that are cut",
    imageWith(),
    [head("200 OK", "{"), CLOSE],
    document,
    1,
  ],
  ["events without a picture", partly, [streamHead(), lastChunk], [
    streamHead(),
    chunk(completed),
  ], 1],
];

for (const [name, request, first, second, made] of repeats) {
  Deno.test(`${name} are repeated on another engine`, async () => {
    await using t = startPool(first, second);
    const call = recordCall();
    const cost = await runMedia(request, call, t.pools);
    assert.deepEqual(cost, { usage: null, tokens: made });
    assert.equal(call.made, made);
    assert.notEqual(call.seen().type, "");
    assert.deepEqual(t.requests(), [1, 1]);
  });
}

const final: [
  name: string,
  request: MediaRequest,
  first: Step[],
  made: number,
][] = [
  [
    "sound that is cut",
    speechWith(),
    [typed("audio/mpeg"), chunk(SOUND), { pauseMs: 20 }, CLOSE],
    CHARACTERS,
  ],
  [
    "events that are cut after a picture",
    partly,
    [streamHead(), chunk(partial), { pauseMs: 20 }, CLOSE],
    0,
  ],
];

for (const [name, request, first, made] of final) {
  Deno.test(`${name} are not repeated`, async () => {
    await using t = startPool(first, sound);
    const call = recordCall();
    await assert.rejects(
      runMedia(request, call, t.pools),
      (error) => error instanceof UpstreamError && error.fault === "truncated",
    );
    assert.equal(call.made, made);
    assert.deepEqual(t.requests(), [1, 0]);
  });
}

Deno.test("a request that no worker of media runs is an error of ours", async () => {
  const chat = { model: "ours", stream: false };
  const wrong = [
    chat,
    { ...speechWith(), model: "unknown" },
    { ...chat, kind: "video", prompt: "A fox" },
    { ...chat, kind: "speech", input: "Hi", response_format: "m4a" },
    { ...chat, kind: "image", task: "edit", prompt: 1, n: 1 },
    { ...chat, kind: "image", prompt: "A fox", n: 1 },
  ];
  await using t = startPool(sound, sound);
  for (const request of wrong) {
    await assert.rejects(runMedia(request, recordCall(), t.pools), {
      code: "internal_error",
    });
  }
  assert.deepEqual(t.requests(), [0, 0]);
});
