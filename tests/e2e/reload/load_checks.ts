// Promise: the list of models and the keys of model servers change while the gateway
// serves, and no request is lost: what runs ends on the old list.
import assert from "node:assert/strict";
import { amountOf } from "../../support/amount.ts";
import { callApi, postChat } from "../../support/chat_request.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { simulates } from "../../support/gateway/simulator.ts";
import { until } from "../../support/wait_for.ts";
import { listAfter, replace } from "./changing_list_fixture.ts";
import { PATIENT_MS, type Rig } from "./rig_fixture.ts";

/** How many requests are sent while the list changes. */
export const REQUESTS = amountOf({ usual: 80, full: 10_000 });
/** How often the list changes. */
export const CHANGES = amountOf({ usual: 3, full: 100 });
/** Requests that run at the same time. */
const CALLERS = amountOf({ usual: 6, full: 20 });
/** Enough for both edges, and for workers of both kinds. */
const WARM_UP = 16;
/** A change takes about 0.6 s: most answers end within one, and some outlast several. */
const SHORT = { tokens: 12, controls: "12 tokens, 60 tokens per second" };
const LASTING = { tokens: 120, controls: "120 tokens, 60 tokens per second" };
const LASTING_EVERY = 40;

/** Sends one request, and says what was lost of it; null: nothing. */
function lossOf(
  gateway: LaunchedGateway,
  key: string,
  number: number,
): Promise<string | null> {
  // Each edge gets requests of every kind.
  const edge = Math.floor(number / 4) % 2;
  const call = { baseUrl: gateway.baseUrl(edge), key, number };
  return number % 4 === 3 ? lossOfSpeech(call) : lossOfChat(call);
}

interface LoadCall {
  readonly baseUrl: string;
  readonly key: string;
  readonly number: number;
}

async function lossOfSpeech(
  { baseUrl, key }: LoadCall,
): Promise<string | null> {
  const body = { model: "spoken", input: "Hello", voice: "a" };
  const answer = await callApi(`${baseUrl}/audio/speech`, key, { body });
  const { byteLength } = await answer.arrayBuffer();
  return answer.status === 200 && byteLength > 0 ? null : `${answer.status}`;
}

/** Every other request is a stream. */
async function lossOfChat(
  { baseUrl, key, number }: LoadCall,
  model = "steady",
): Promise<string | null> {
  const stream = number % 2 === 0;
  const { tokens, controls } = number % LASTING_EVERY === 0 ? LASTING : SHORT;
  const body = { model, stream, messages: simulates(controls) };
  const answer = await postChat(baseUrl, key, { body });
  const text = await answer.text();
  const isWhole = stream
    ? text.endsWith("data: [DONE]\n\n") && !text.includes('"error"') &&
      text.split('"content"').length > tokens
    : text.includes(`"completion_tokens":${tokens}`);
  return answer.status === 200 && isWhole
    ? null
    : `${answer.status} ${text.slice(-300)}`;
}

/** Whether both edges list one model, and not the other. */
async function haveChanged(
  gateway: LaunchedGateway,
  key: string,
  { added, removed }: { added: string; removed: string },
): Promise<boolean> {
  const lists = await Promise.all([0, 1].map(async (edge) => {
    const answer = await callApi(`${gateway.baseUrl(edge)}/models`, key);
    return await answer.text();
  }));
  return lists.every((list) =>
    list.includes(`"${added}"`) && !list.includes(`"${removed}"`)
  );
}

/** The list and the key change again and again, while both edges serve. */
export async function checkLoad(rig: Rig): Promise<void> {
  const { gateway, files, key, urls } = rig;
  await replace(files.models, listAfter(0, urls));
  const before = { added: "extra-0", removed: "m" };
  await until(() => haveChanged(gateway, key, before), PATIENT_MS);
  // Processes that have just started are slow on a busy machine.
  for (let number = 0; number < WARM_UP; number++) {
    await until(async () => await lossOf(gateway, key, number) === null);
  }
  const lost: string[] = [];
  let sent = 0;
  let changes = 0;
  const isOver = () => sent >= REQUESTS && changes >= CHANGES;
  const call = async () => {
    while (!isOver()) {
      const number = sent;
      sent += 1;
      const loss = await lossOf(gateway, key, number);
      if (loss !== null) lost.push(`${number}: ${loss}`);
    }
  };
  const calling = Promise.all(Array.from({ length: CALLERS }, call));
  for (let next = 1; next <= CHANGES; next++) {
    await replace(files.key, `key-${next}`);
    await replace(files.models, listAfter(next, urls));
    const models = { added: `extra-${next}`, removed: `extra-${next - 1}` };
    await until(() => haveChanged(gateway, key, models), PATIENT_MS);
    const call = { baseUrl: gateway.baseUrl(next % 2), key, number: next };
    const loss = await lossOfChat(call, models.added);
    if (loss !== null) lost.push(`${models.added}: ${loss}`);
    changes = next;
  }
  await calling;
  assert.deepEqual(lost, []);
  assert.ok(sent >= REQUESTS);
}
