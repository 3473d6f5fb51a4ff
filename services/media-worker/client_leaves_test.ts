// Promise: what a request costs does not depend on when its client leaves. A server
// that was told to stop may finish what it makes as a whole, so that counts in full;
// speech stops, so it counts once its first sound has come.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { MediaRequest } from "@gateway/shared/openai/media";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import {
  chunk,
  lastChunk,
  STALL,
  streamHead,
  typed,
} from "../../tests/support/model_servers/model_answers.ts";
import {
  poolOf,
  recordContext,
} from "../../tests/support/model_servers/recorded_context.ts";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import { until } from "../../tests/support/wait_for.ts";
import { runMedia } from "./media.ts";
import {
  CHARACTERS,
  IMAGE,
  namedEvent,
  partly,
  type Rig,
  SPEECH,
  SSE,
  startServer,
  TRANSCRIPTION,
} from "./server_fixture.ts";

const SOUND = new Uint8Array(1_024).fill(7);
const b64_json = SOUND.toBase64();
/** Bytes of a recording without a header: 3 s at the usual rate. */
const RECORDING = Buffer.alloc(24_000);
const RECORDED_SECONDS = 3;

interface Endpoint {
  name: string;
  request: MediaRequest;
  /** The answer, cut into the parts that the moments below are between. */
  head: Step;
  parts: Step[];
  /** The units charged to a client that leaves before anything has come. */
  before: number;
  /** The units charged from the first part on, and when it is complete. */
  whole: number;
}

const image = (type: string) => chunk(namedEvent({ type, b64_json }));
const text = (type: string, rest: object) =>
  chunk(namedEvent({ type, ...rest }));

const endpoints: Endpoint[] = [
  {
    name: "images, whole",
    request: { ...IMAGE, count: 2 },
    head: typed("application/json"),
    parts: [
      chunk('{"data":['),
      chunk(`{"b64_json":"${b64_json}"},`),
      chunk(`{"b64_json":"${b64_json}"}]}`),
    ],
    before: 2,
    whole: 2,
  },
  {
    name: "images, as they become sharper",
    request: partly(2),
    head: streamHead(),
    parts: [
      image("image_generation.partial_image"),
      image("image_generation.partial_image"),
      image("image_generation.completed"),
    ],
    before: 1,
    whole: 1,
  },
  {
    name: "transcriptions, whole",
    request: TRANSCRIPTION,
    head: typed("application/json"),
    parts: [chunk('{"text":'), chunk('"Good '), chunk('morning."}')],
    before: RECORDED_SECONDS,
    whole: RECORDED_SECONDS,
  },
  {
    name: "transcriptions, as they are made",
    request: { ...TRANSCRIPTION, ...SSE },
    head: streamHead(),
    parts: [
      text("transcript.text.delta", { delta: "Good " }),
      text("transcript.text.delta", { delta: "morning." }),
      text("transcript.text.done", { text: "Good morning." }),
    ],
    before: RECORDED_SECONDS,
    whole: RECORDED_SECONDS,
  },
  {
    name: "speech",
    request: SPEECH,
    head: typed("audio/mpeg"),
    parts: [chunk(SOUND), chunk(SOUND), chunk(SOUND)],
    before: 0,
    whole: CHARACTERS,
  },
];

/** How many steps of its answer a server has sent when the client leaves. */
const moments = [
  { name: "before the head", parts: 0 },
  { name: "at the head", parts: 1 },
  { name: "at the first bytes", parts: 2 },
  { name: "in the middle", parts: 3 },
];

for (const { name, request, head, parts, before, whole } of endpoints) {
  for (const moment of moments) {
    const units = moment.parts < 2 ? before : whole;
    Deno.test(`${name}, left ${moment.name}, cost ${units}`, async () => {
      const steps = [head, ...parts].slice(0, moment.parts);
      await using r = startServer(() => [...steps, STALL]);
      const controller = new AbortController();
      const context = callOf(controller.signal);
      const running = runMedia(request, context, dependenciesOf(r));
      const serverRequest = await r.peer.request(1);
      // Events come one by one; pieces of sound may have come together.
      const writes = request.stream ? moment.parts - 1 : 1;
      const isPassedOn = request.stream || request.kind === "speech";
      const passed = isPassedOn && moment.parts > 1 ? writes : 0;
      await until(() => context.writes >= passed);
      controller.abort(new Error("Client left"));
      await assert.rejects(running, /Client left/);
      await serverRequest.left;
      assert.equal(context.tokens, units);
    });
  }

  Deno.test(`${name}, read to the end, cost ${whole}`, async () => {
    await using r = startServer(() => [head, ...parts, lastChunk]);
    const context = callOf(new AbortController().signal);
    const { tokens } = await runMedia(request, context, dependenciesOf(r));
    assert.equal(tokens, whole);
  });
}

/** A call that counts what is passed on after the head of the answer. */
function callOf(signal: AbortSignal) {
  const file = { field: "file", name: "a.mp3", type: "audio/mpeg" };
  const files = [{ ...file, content: RECORDING }];
  const context = Object.assign(recordContext({ signal, files }), {
    writes: 0,
  });
  const { write } = context;
  return Object.assign(context, {
    write(...[part, tokens]: Parameters<typeof write>) {
      if (part.length > 0 && context.bytes > 0) context.writes += 1;
      return write(part, tokens);
    },
  });
}

const dependenciesOf = ({ server }: Rig) => ({
  pool: poolOf(server),
  memory: new WorkerMemory(1e9).openJob(),
});
