// What holds for every kind of request: clients that leave, or do not read, and what
// a pool of model servers repeats.
import assert from "node:assert/strict";
import type { JobRequest } from "@gateway/shared/bus/job";
import type { MediaRequest } from "@gateway/shared/openai/media";
import { monotonicNow } from "@gateway/shared/process/clock";
import { BackendPool } from "@gateway/shared/upstream/pool";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import {
  chunk,
  CLOSE,
  head,
  jsonResponse,
  lastChunk,
  PAUSE,
  STALL,
  streamHead,
  typed,
} from "../../tests/support/model_servers/model_answers.ts";
import {
  recordContext,
  slowContext,
} from "../../tests/support/model_servers/recorded_context.ts";
import { startStopwatch, until } from "../../tests/support/wait_for.ts";
import { runMedia } from "./media.ts";
import {
  CHARACTERS,
  IMAGE,
  namedEvent,
  partly,
  read,
  SPEECH,
  SSE,
  sse,
  startServer,
} from "./server_fixture.ts";

const MIB = 1024 * 1024;
const SOUND = new Uint8Array(16 * 1024).fill(7);
const b64_json = SOUND.toBase64();
const delta = namedEvent({ type: "speech.audio.delta", audio: b64_json });
const partial = namedEvent({
  type: "image_generation.partial_image",
  b64_json,
});
const completed = namedEvent({ type: "image_generation.completed", b64_json });
const request: MediaRequest = partly(3);
const spoken: MediaRequest = { ...SPEECH, ...SSE };
const elsewhere = jsonResponse({ data: [{ url: "/a" }] });

/** The guarantee: a client that leaves is noticed at the model server within 100 ms. */
const NOTICED_MS = 100;
interface Moment {
  name: string;
  request: MediaRequest;
  reply: Step[];
  hasBegun: boolean;
}

const moments: Moment[] = [
  {
    name: "before the first sound",
    request: SPEECH,
    reply: [],
    hasBegun: false,
  },
  {
    name: "within sound",
    request: SPEECH,
    reply: [typed("audio/mpeg"), chunk(SOUND)],
    hasBegun: true,
  },
  {
    name: "within events of sound",
    request: spoken,
    reply: [streamHead(), chunk(delta)],
    hasBegun: true,
  },
  {
    name: "after a picture",
    request,
    reply: [streamHead(), chunk(partial)],
    hasBegun: true,
  },
  {
    name: "while it fetches a picture",
    request: IMAGE,
    reply: elsewhere,
    hasBegun: false,
  },
];

for (const { name, request, reply, hasBegun } of moments) {
  Deno.test(`a model server is left within ${NOTICED_MS} ms by a client that leaves ${name}`, async () => {
    await using r = startServer(({ method }) =>
      method === "GET"
        ? [STALL]
        : reply === elsewhere
        ? reply
        : [...reply, STALL]
    );
    const controller = new AbortController();
    const context = recordContext(controller);
    const running = r.run(request, context);
    const serverRequest = await r.peer.request(reply === elsewhere ? 2 : 1);
    await until(() => (context.bytes > SOUND.length) === hasBegun);
    using watch = startStopwatch();
    controller.abort(new Error("Client left"));
    assert.match(String((await running).error), /Client left/);
    await serverRequest.left;
    assert.ok(watch.ms < NOTICED_MS, `Noticed after ${watch.ms} ms`);
    await until(() => r.peer.openConnections === 0);
  });
}

function* many(start: Step, each: Step, end: Step): Iterable<Step> {
  yield start;
  for (let index = 0; index < 2_000; index++) yield each;
  yield end;
}
const endless: {
  name: string;
  request: MediaRequest;
  reply: [start: Step, each: Step, end: Step];
}[] = [
  {
    name: "sound",
    request: SPEECH,
    reply: [typed("audio/mpeg"), chunk(SOUND), lastChunk],
  },
  {
    name: "pictures",
    request,
    reply: [streamHead(), chunk(partial), chunk(completed)],
  },
];
for (const { name, request, reply } of endless) {
  Deno.test(`${name} are read as fast as the client takes them, and no deadline but the total counts meanwhile`, async () => {
    const deadlines = { between_tokens_ms: 400 };
    await using r = startServer(() => many(...reply), { deadlines });
    const { context, room } = slowContext();
    const running = r.run(request, context);
    const serverRequest = await r.peer.request(1);
    let before = -1;
    let stable = 0;
    await until(() => {
      stable = serverRequest.bytesSent === before ? stable + 1 : 0;
      before = serverRequest.bytesSent;
      return stable === 100;
    });
    // What the connections hold: none of it is in this process.
    assert.ok(
      serverRequest.bytesSent < 16 * MIB,
      `${serverRequest.bytesSent}`,
    );
    assert.ok(context.bytes < 2 * MIB, `${context.bytes}`);
    room.resolve();
    assert.equal((await running).error, null);
    assert.ok(context.bytes > 2_000 * SOUND.length);
  });
}

Deno.test("a client that takes nothing and leaves ends the wait for it", async () => {
  await using r = startServer(() =>
    many(typed("audio/mpeg"), chunk(SOUND), lastChunk)
  );
  const controller = new AbortController();
  const { context, room } = slowContext(controller.signal);
  const running = r.run(SPEECH, context);
  await until(() => context.bytes > 0);
  controller.abort(new Error("Client left"));
  // As the job does.
  room.resolve();
  assert.match(String((await running).error), /Client left/);
  await until(() => r.peer.openConnections === 0);
});

function startPool(first: Step[], second: Step[]) {
  const both = [first, second].map((reply, preference) =>
    startServer(() => reply, { preference, name: `e${preference}` })
  );
  const pool = new BackendPool({
    backends: both.map(({ server }) => server),
    now: monotonicNow,
    random: () => 0.5,
    sleep: () => Promise.resolve(),
    onAttempt: () => {},
    onOddity: () => {},
  });
  return {
    run: (request: JobRequest, context = recordContext()) =>
      runMedia(request, context, {
        pool,
        memory: new WorkerMemory(1e9).openJob(),
      }),
    requests: () => both.map(({ peer }) => peer.requests.length),
    async [Symbol.asyncDispose]() {
      for (const rig of both) await rig[Symbol.asyncDispose]();
    },
  };
}

const sound = [head("200 OK\r\ncontent-length: 1", "x")];
const document = jsonResponse({ data: [{ b64_json }] });
const noSound = [typed("audio/mpeg"), lastChunk];
const cutSound = [typed("audio/mpeg"), chunk(SOUND), PAUSE, CLOSE];
const cutEvents = [streamHead(), chunk(partial), PAUSE, CLOSE];
interface Attempts {
  name: string;
  request: MediaRequest;
  first: Step[];
  /** Null: nothing is repeated. */
  second: Step[] | null;
  units: number;
}

const attempts: Attempts[] = [
  {
    name: "speech that is refused",
    request: SPEECH,
    first: [CLOSE],
    second: sound,
    units: CHARACTERS,
  },
  {
    name: "speech without sound",
    request: SPEECH,
    first: noSound,
    second: sound,
    units: CHARACTERS,
  },
  {
    name: "a cut document",
    request: IMAGE,
    first: [head("200 OK", "{"), CLOSE],
    second: document,
    units: 1,
  },
  {
    name: "events without a picture",
    request,
    first: sse(),
    second: sse(completed),
    units: 1,
  },
  {
    name: "sound that is cut",
    request: SPEECH,
    first: cutSound,
    second: null,
    units: CHARACTERS,
  },
  {
    name: "events that are cut after a picture",
    request,
    first: cutEvents,
    second: null,
    units: 0,
  },
];

for (const { name, request, first, second, units } of attempts) {
  const verb = second === null ? "not " : "";
  Deno.test(`an attempt is ${verb}repeated elsewhere after ${name}`, async () => {
    await using t = startPool(first, second ?? sound);
    const context = recordContext();
    const running = t.run(request, context);
    if (second === null) {
      await assert.rejects(running, { code: "upstream_truncated" });
    } else {
      assert.deepEqual(await running, { usage: null, tokens: units });
      assert.notEqual(read(context).head, null);
    }
    assert.equal(context.tokens, units);
    assert.deepEqual(t.requests(), [1, second === null ? 0 : 1]);
  });
}

Deno.test("a request that no worker of media runs is an error of ours", async () => {
  const chat = { model: "ours", stream: false };
  const wrong = [
    chat,
    { ...chat, kind: "video", prompt: "A fox" },
    { ...SPEECH, format: 1 },
    { ...IMAGE, prompt: 1 },
    { ...IMAGE, task: undefined },
  ];
  await using t = startPool(sound, sound);
  for (const request of wrong) {
    await assert.rejects(t.run(request), { code: "internal_error" });
  }
  assert.deepEqual(t.requests(), [0, 0]);
});
