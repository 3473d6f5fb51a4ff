// Promise: while workers are killed and the bus is cut and restarted, each forwarded
// answer reaches its client as a beginning of what the server said, to the byte, and
// then its end, the error of its dialect or, of a whole answer, a cut that its length
// shows: never a normal end of half an answer.
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import {
  chunk,
  lastChunk,
  streamHead,
} from "../../support/model_servers/model_answers.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { InProcessWorker } from "../../support/gateway/in_process_worker.ts";
import { type OpenGateway, TEST_KEY } from "../../support/gateway/open.ts";
import {
  startScriptedServer,
  type Step,
  type WholeRequest,
} from "../../support/model_servers/scripted_server.ts";
import type { TcpProxy } from "../../support/servers/tcp_proxy.ts";
import { seededRandom } from "../../support/seeded_random.ts";
import { sleep } from "../../support/wait_for.ts";
import { completion, MESSAGE, RESPONSE } from "../../forward/event_streams.ts";

const SEED = 1;
const REQUESTS = 120;
const WORKERS = 3;
const PAUSE_MS = 20;
/** On a busy machine more streams are open when a worker is killed. */
const WHOLE_MIN = 10;
const TOKENS = 40;
const TOKEN_MS = 5;
/** Nothing that is not cut short takes longer, whatever fails meanwhile. */
const ENDS_WITHIN_MS = 20_000;
const FAULTS = ["kill", "cut", "bus", "kill", "cut", "kill"];

/** A forwarded endpoint: what is asked, and what the server says. */
interface Endpoint {
  path: string;
  /** The members of the request beside its number. */
  members: string;
  /** The pieces of the answer to the request with this number. */
  pieces(number: number): string[];
  /** How a stream ends that has failed; null: the answer is no stream. */
  failed: RegExp | null;
}

const wordsOf = (number: number) =>
  Array.from({ length: TOKENS }, (_, at) => `${number}.${at} `);

const ENDPOINTS: readonly Endpoint[] = [
  {
    path: "messages",
    members: '"model":"m","max_tokens":99,"stream":true',
    pieces(number) {
      const { start, content, text, end } = MESSAGE;
      return [start, content, ...wordsOf(number).map(text), end];
    },
    failed: /event: error\ndata: .*\n\n$/,
  },
  {
    path: "responses",
    members: '"model":"m","max_output_tokens":99,"stream":true',
    pieces: (number) => [
      RESPONSE.created,
      ...wordsOf(number).map(RESPONSE.text),
      RESPONSE.end,
    ],
    failed: /event: response\.failed\ndata: .*\n\n$/,
  },
  {
    path: "completions",
    members: '"model":"m","max_tokens":99,"stream":true,"prompt":"a"',
    pieces: (number) => [
      ...wordsOf(number).map((word) => completion(word)),
      completion("", ',"finish_reason":"stop"'),
      "data: [DONE]\n\n",
    ],
    failed: /data: \{"error":.*\n\n$/,
  },
  {
    path: "embeddings",
    members: '"model":"e","input":"a"',
    pieces: (number) => [
      '{"object":"list","data":[{"index":0,"embedding":[0.10',
      ...wordsOf(number).map((word) => `,${word}`),
      ']}],"usage":{"prompt_tokens":1,"total_tokens":1}}',
    ],
    failed: null,
  },
  {
    path: "rerank",
    members: '"model":"r","query":"a","documents":["b"]',
    pieces: (number) => [
      '{"results":[{"index":0,"relevance_score":1.0}],"more":[0',
      ...wordsOf(number).map((word) => `,${word}`),
      "]}",
    ],
    failed: null,
  },
];

/** Head and pieces of the answer to a request. */
function* answerTo({ path, body }: WholeRequest): Iterable<Step> {
  const endpoint = ENDPOINTS.find((each) => path.endsWith(each.path)) ??
    assert.fail(path);
  const number = Number(/"number":(\d+)/.exec(body)?.[1]);
  const type = { "content-type": "application/json" };
  yield streamHead(endpoint.failed === null ? { headers: type } : {});
  for (const piece of endpoint.pieces(number)) {
    yield* [chunk(piece), { pauseMs: TOKEN_MS }];
  }
  yield lastChunk;
}

/** Statuses if a worker is lost, or if there is none, before the answer has begun. */
const FAILED = [502, 503];

/** A worker whose connection to the bus can be cut. */
interface Place {
  proxy: TcpProxy;
  worker: InProcessWorker;
}

Deno.test(`${REQUESTS} forwarded answers under failing workers and a failing bus, seed ${SEED}`, async () => {
  await using server = startScriptedServer({ reply: answerTo });
  const backend = { type: "openai", base_url: server.baseUrl, model: "theirs" };
  const backends = [backend];
  const catalog = parseCatalog({
    models: [
      { id: "m", backends: [{ ...backend, dialect: "vllm" }] },
      { id: "e", kind: "embedding", backends },
      { id: "r", kind: "rerank", backends },
    ],
  });
  await using gateway = await startGateway("open", { door: { catalog } });
  const { baseUrl } = server;
  const start = async (): Promise<Place> => {
    const proxy = gateway.addProxy();
    const servers = [proxy.server];
    const worker = await gateway.addWorker({ baseUrl }, { catalog, servers });
    return { proxy, worker };
  };
  const living: Place[] = [];
  while (living.length < WORKERS) living.push(await start());
  const random = seededRandom(SEED);
  const failing = fail({ gateway, living, start, random });
  const requests: Promise<unknown>[] = [];
  for (let number = 1; number <= REQUESTS; number += 1) {
    const endpoint = ENDPOINTS[number % ENDPOINTS.length] ?? assert.fail();
    // A failure is told when all have ended.
    requests.push(ask(gateway, endpoint, number).catch((error) => error));
    await sleep(random() * 2 * PAUSE_MS);
  }
  await failing;
  const outcomes = await Promise.all(requests);
  for (const outcome of outcomes) {
    if (outcome instanceof Error) throw outcome;
  }
  const whole = outcomes.filter((outcome) => outcome === "whole").length;
  assert.ok(whole > WHOLE_MIN, `only ${whole} are whole`);
  await gateway.idle();
});

async function fail(
  { gateway, living, start, random }: {
    gateway: OpenGateway;
    living: Place[];
    start: () => Promise<Place>;
    random: () => number;
  },
): Promise<void> {
  for (const fault of FAULTS) {
    await sleep(150 + random() * 300);
    if (fault === "bus") await gateway.nats.restart();
    else if (fault === "cut") living[0]?.proxy.cut();
    else {
      await living.shift()?.worker.kill();
      living.push(await start());
    }
  }
}

/** Asks, checks the answer, and says how it ended. */
async function ask(
  gateway: OpenGateway,
  endpoint: Endpoint,
  number: number,
): Promise<string> {
  const { path, members, failed } = endpoint;
  const answer = await fetch(`${gateway.baseUrl()}/${path}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${TEST_KEY}`,
      "content-type": "application/json",
    },
    body: `{${members},"number":${number}}`,
    signal: AbortSignal.timeout(ENDS_WITHIN_MS),
  });
  const { text, isCut } = await readAll(answer);
  const what = `${path} ${number}: ${answer.status} ${text.slice(-300)}`;
  if (answer.status !== 200) {
    assert.ok(FAILED.includes(answer.status), what);
    return "refused";
  }
  const wholeText = endpoint.pieces(number).join("");
  if (text === wholeText && !isCut) return "whole";
  if (failed === null) assert.ok(isCut, what);
  else assert.match(text, failed, what);
  // Signs of life stand between events.
  const delivered = (failed === null ? text : text.replace(failed, ""))
    .replaceAll(MESSAGE.ping, "").replaceAll(": keep-alive\n\n", "");
  assert.ok(wholeText.startsWith(delivered), what);
  assert.ok(delivered.length < wholeText.length, what);
  return "failed";
}

/** The body, as far as it comes, and whether its connection broke off before its end. */
async function readAll(answer: Response) {
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const bytes of answer.body ?? []) {
      text += decoder.decode(bytes, { stream: true });
    }
  } catch (error) {
    // It came too late.
    if (error instanceof DOMException) throw error;
    return { text, isCut: true };
  }
  return { text, isCut: false };
}
