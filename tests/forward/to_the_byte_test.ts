// Promise: whatever a client and a server write, random bodies and random streams come
// through edge, bus and worker equal to the byte, but for the name of the model.
// `deno task test:long` tries many more than the usual run.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { amountOf } from "../support/amount.ts";
import {
  chunk,
  lastChunk,
  streamHead,
} from "../support/model_servers/model_answers.ts";
import type { Step } from "../support/model_servers/scripted_server.ts";
import { seedsOr } from "../support/seeded_random.ts";
import { type ForwardRig, setupWith } from "./forward_rig.ts";
import { RandomTexts } from "./random_texts.ts";

const THEIRS = "BAAI/bge-m3";
/** Passed on like all headers of this kind; tells the server which answer is due. */
const CASE_HEADER = "x-stainless-case";
const AT_ONCE = 8;
const LONG_EVENT_BYTES = 2 * 1024 * 1024;
/** One of this many streams has an event of that length. */
const LONG_EVENT_EVERY = 40;
const USAGE = { prompt_tokens: 11, completion_tokens: 5 };

/** What is asked for, and what belongs to it in a body and in an answer. */
interface Kind {
  path: string;
  /** How the model is written. */
  models: readonly string[];
  /** Other members that a body needs. */
  members: readonly string[];
  /** Members of a whole answer. */
  answer: readonly string[];
  /** The events of a stream. */
  events?: readonly string[];
}

const TALK = ['"talk"', '"\\u0074alk"'];
const OF_MESSAGES = '"usage":{"input_tokens":11,"output_tokens":5}';
const OF_COMPLETIONS = '"usage": {"prompt_tokens":11,"completion_tokens":5}';

const KINDS: readonly Kind[] = [
  {
    path: "messages?beta=true",
    models: TALK,
    members: ['"max_tokens" : 10'],
    answer: [OF_MESSAGES, '"type":"message"'],
    events: [
      `event: message_start\ndata: {"type":"message_start","message":{${OF_MESSAGES}}}`,
      'data: {"type": "content_block_delta",\ndata: "delta":{"type":"text_delta","text":"é😀"}}',
      'event: message_delta\ndata: {"usage":{"output_tokens":5},"x":1.0}',
      'event: message_stop\ndata: {"type":"message_stop"}',
    ],
  },
  {
    path: "responses",
    models: TALK,
    members: ['"input": "é"', '"store":false'],
    answer: [OF_MESSAGES, '"output":[ ]'],
    events: [
      'event: response.created\ndata: {"response":{}}',
      'event: response.output_text.delta\ndata: {"delta":"日本"}',
      'data: {"delta":"b\\u0000","type":"response.output_text.delta"}',
      `event: response.completed\ndata: {"response":{\ndata: ${OF_MESSAGES}}}`,
    ],
  },
  {
    path: "completions",
    models: TALK,
    members: ['"prompt":"é"', '"suffix":"\\u00e9"'],
    answer: [OF_COMPLETIONS, '"choices":[{"text":""}]'],
    events: [
      'data: {"choices":[{"text":"é"}]}',
      'data:{"choices":[{"text": "","finish_reason":"stop"}]}',
      `data: {"choices":[],${OF_COMPLETIONS}}`,
      "data: [DONE]",
    ],
  },
  {
    path: "embeddings",
    models: ['"embed"', '"emb\\u0065d"'],
    members: ['"input":[ "a","é" ]', '"dimensions":2.0'],
    answer: [
      '"usage":{"prompt_tokens":11}',
      '"data" : [{"embedding":[1.0,-2E-9 ]},{"embedding":"AACAPw=="} ]',
    ],
  },
  {
    path: "rerank",
    models: ['"order"'],
    members: ['"query":"é"', '"documents":["a",{"text":"b"}]'],
    answer: ['"usage":{"total_tokens":11}', '"results":[]'],
  },
  {
    path: "moderations",
    models: TALK,
    members: ['"input":"a"'],
    answer: ['"results":[]'],
  },
];

const wholeOf = ({ answer }: Kind, texts: RandomTexts): string =>
  texts.space() + texts.object(answer) + texts.space();

/** One request, its answer, and what both must be on the other side. */
class Case {
  readonly path: string;
  /** What the client sends. */
  readonly body: string;
  /** What the server must get. */
  readonly forwarded: string;
  /** What the client must get: what the server sends, and the end of a last event. */
  readonly answer: Buffer;
  readonly steps: Step[];

  constructor(readonly seed: number) {
    const texts = new RandomTexts(seed);
    const kind = texts.pick(KINDS);
    const isStream = kind.events !== undefined && texts.below(3) > 0;
    const members = [
      `${texts.pick(['"model"', '"mod\\u0065l"'])}:${texts.space()}<model>`,
      ...kind.members,
      ...isStream ? ['"stream": true'] : [],
    ];
    // A number may be no number of JavaScript's, and a name not be valid text.
    const text = texts.space() + texts.object(members) + texts.space();
    this.path = kind.path;
    this.body = text.replace("<model>", texts.pick(kind.models));
    this.forwarded = text.replace("<model>", JSON.stringify(THEIRS));
    const isLong = seed % LONG_EVENT_EVERY === 0;
    const { sent, missing } = isStream
      ? texts.stream(kind.events ?? [], isLong ? LONG_EVENT_BYTES : 0)
      : { sent: Buffer.from(wholeOf(kind, texts)), missing: "" };
    this.answer = Buffer.concat([sent, Buffer.from(missing)]);
    const type = isStream ? "text/event-stream" : "application/json";
    this.steps = [
      streamHead({ headers: { "content-type": type } }),
      ...texts.pieces(sent).map(chunk),
      lastChunk,
    ];
  }

  /** Sends the request, and compares what arrives on both sides. */
  async check(rig: ForwardRig): Promise<void> {
    const what = `TEST_SEED=${this.seed} ${this.path}`;
    const header = { [CASE_HEADER]: String(this.seed) };
    const reply = await rig.post(this.path, this.body, header);
    const got = Buffer.from(await reply.arrayBuffer());
    assert.equal(reply.status, 200, `${what}: ${got} to ${this.body}`);
    const sent = rig.servers[0]?.requests
      .filter(({ headers }) => headers.get(CASE_HEADER) === String(this.seed))
      .map(({ body }) => body);
    assert.deepEqual(sent, [this.forwarded], what);
    if (!got.equals(this.answer)) {
      assert.equal(got.toString(), this.answer.toString(), what);
    }
  }
}

Deno.test("random bodies and streams come through equal to the byte, and are counted", async () => {
  await using rig = await setupWith(
    { backend: { forward_paths: ["/v1/moderations"] } },
    ({ headers }) => new Case(Number(headers.get(CASE_HEADER))).steps,
  );
  const count = amountOf({ usual: 240, full: 5_000 });
  const seeds = seedsOr(Array.from({ length: count }, (_, seed) => seed));
  for (let at = 0; at < seeds.length; at += AT_ONCE) {
    const some = seeds.slice(at, at + AT_ONCE);
    await Promise.all(some.map((seed) => new Case(seed).check(rig)));
    rig.servers[0]?.requests.splice(0);
  }
  const settled = rig.settlements();
  assert.equal(settled.length, seeds.length);
  for (const outcome of settled) {
    assert.equal(outcome?.kind, "complete");
    const { prompt_tokens: prompt, completion_tokens: completion } =
      outcome?.usage ?? assert.fail("no usage");
    const isStated = prompt === USAGE.prompt_tokens &&
      [USAGE.completion_tokens, 0].includes(completion);
    assert.ok(isStated || prompt === 0, JSON.stringify(outcome));
  }
});
