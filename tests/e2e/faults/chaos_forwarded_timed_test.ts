// Promise: while workers are killed and the bus is cut and restarted, each forwarded
// stream reaches its client as a beginning of what the server said, to the byte, and
// then its end, or the error of its dialect: never a normal end of half an answer.
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
} from "../../support/model_servers/scripted_server.ts";
import type { TcpProxy } from "../../support/servers/tcp_proxy.ts";
import { seededRandom } from "../../support/seeded_random.ts";
import { sleep } from "../../support/wait_for.ts";
import { MESSAGE, RESPONSE } from "../../forward/event_streams.ts";

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

/** What the server says to the request with this number. */
function eventsFor(path: string, number: number): string[] {
  const words = Array.from({ length: TOKENS }, (_, at) => `${number}.${at} `);
  const { start, content, text, end } = MESSAGE;
  return path.endsWith("messages")
    ? [start, content, ...words.map(text), end]
    : [RESPONSE.created, ...words.map(RESPONSE.text), RESPONSE.end];
}

function* answerTo(events: readonly string[]): Iterable<Step> {
  yield streamHead();
  for (const event of events) yield* [chunk(event), { pauseMs: TOKEN_MS }];
  yield lastChunk;
}

/** Of a fault before the answer has begun: a worker was lost, or there is none. */
const FAILED = [502, 503];
const ENDS = /event: (?:error|response\.failed)\ndata: .*\n\n$/;

/** A worker whose connection to the bus can be cut. */
interface Place {
  proxy: TcpProxy;
  worker: InProcessWorker;
}

Deno.test(`${REQUESTS} forwarded streams under failing workers and a failing bus, seed ${SEED}`, async () => {
  await using server = startScriptedServer({
    reply: ({ path, body }) =>
      answerTo(eventsFor(path, Number(/"number":(\d+)/.exec(body)?.[1]))),
  });
  const backend = {
    type: "openai",
    base_url: server.baseUrl,
    model: "theirs",
    dialect: "vllm",
  };
  const catalog = parseCatalog({ models: [{ id: "m", backends: [backend] }] });
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
    const path = random() < 0.5 ? "messages" : "responses";
    // A failure is told when all have ended.
    requests.push(ask(gateway, path, number).catch((error) => error));
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
  path: string,
  number: number,
): Promise<string> {
  const answer = await fetch(`${gateway.baseUrl()}/${path}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${TEST_KEY}`,
      "content-type": "application/json",
    },
    body: `{"model":"m","max_tokens":99,"stream":true,"number":${number}}`,
    signal: AbortSignal.timeout(ENDS_WITHIN_MS),
  });
  const text = await answer.text();
  const what = `request ${number}: ${answer.status} ${text.slice(-300)}`;
  if (answer.status !== 200) {
    assert.ok(FAILED.includes(answer.status), what);
    return "refused";
  }
  const wholeText = eventsFor(path, number).join("");
  if (text === wholeText) return "whole";
  // Signs of life stand between events.
  const delivered = text.replace(ENDS, "")
    .replaceAll(MESSAGE.ping, "").replaceAll(": keep-alive\n\n", "");
  assert.match(text, ENDS, what);
  assert.ok(wholeText.startsWith(delivered), what);
  assert.ok(delivered.length < wholeText.length, what);
  return "failed";
}
