// Promise 3: what the console says of a key or an owner holds for the next request on
// every edge, under load too; "also stop requests now running" ends every running
// request of the key within a second of the click, and nobody else's.
import assert from "node:assert/strict";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { hashKey, leaseKey } from "@gateway/shared/keys/record";
import { amountOf } from "../support/amount.ts";
import {
  type ChatOutcome,
  outcomeOf,
} from "../support/gateway/chat_outcome.ts";
import { callApi } from "../support/chat_request.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { LONG } from "../support/gateway/simulator.ts";
import type { TestClient } from "../../services/key-admin/client_fixture.ts";
import {
  type MadeKey,
  makeKey,
} from "../../services/key-admin/forms_fixture.ts";
import { matchIn, openConsole } from "../support/gateway/console_client.ts";
import { until } from "../support/wait_for.ts";

/** The edges of the gateway, by their numbers. */
export const EDGES: readonly number[] = [0, 1, 2];
/** Each is a disable and an enable, with every edge asked after both. */
const ROUNDS = amountOf({ usual: 24, full: 60 });
/** Changed side by side: one key's changes must not wait for another's. */
const KEYS = 4;
/** Requests of each kind that run on each edge. */
const RUNNING = 3;
/** Counted from before the request to the console is sent. */
const STOP_MS_MAX = 1_000;

/** What answers a key in a state gets. */
const STATUS_OF = { disable: 403, enable: 200, delete: 401 } as const;
type Change = keyof typeof STATUS_OF;

/** A key, and what requests with it were to be answered since it was made. */
interface WatchedKey extends MadeKey {
  /** Every change must name it, and raises it. */
  version: number;
  /**
   * Statuses that are right, by phase: one while a state holds, two during a change.
   * The last phase is now.
   */
  phases: number[][];
}

async function createWatched(
  browser: TestClient,
  description: string,
): Promise<WatchedKey> {
  const phases: number[][] = [[STATUS_OF.enable]];
  return { ...await makeKey(browser, description), version: 1, phases };
}

/**
 * Changes a key and notes the phases: until the console has acknowledged it, both
 * answers are right.
 */
async function change(
  browser: TestClient,
  key: WatchedKey,
  { what, more = {} }: { what: Change; more?: Record<string, string> },
) {
  const before = key.phases.at(-1) ?? [];
  key.phases.push([...before, STATUS_OF[what]]);
  const sure = what === "delete" && { sure: "on" };
  const form = { version: String(key.version++), ...sure, ...more };
  const answer = await browser.post(`/keys/${key.id}/${what}`, form);
  assert.equal(answer.status, 303, answer.text);
  key.phases.push([STATUS_OF[what]]);
  return answer;
}

/**
 * Keeps every edge busy with the keys in turn, chat and lists alternating, until it is
 * told to stop.
 */
function startLoad(gateway: LaunchedGateway, keys: readonly WatchedKey[]) {
  /** Answers by status. */
  const counts = new Map<number, number>();
  /** Answers that were not right in any phase the request had seen. */
  const wrong: string[] = [];
  const ask = async (key: WatchedKey, edge: number, isChat = true) => {
    const since = key.phases.length - 1;
    const response = isChat
      ? await gateway.ask(key.value, { edge })
      : await callApi(`${gateway.baseUrl(edge)}/models`, key.value);
    // Read, so that the connection serves the next.
    await response.arrayBuffer();
    const { status } = response;
    counts.set(status, (counts.get(status) ?? 0) + 1);
    const right = key.phases.slice(since).flat();
    if (right.includes(status)) return;
    wrong.push(`edge ${edge}: ${status}, not ${right}`);
  };
  let isOver = false;
  const loops = Promise.all(EDGES.map(async (edge) => {
    for (let n = edge; !isOver; n++) {
      const key = keys[n % keys.length] ?? assert.fail("a load needs keys");
      await ask(key, edge, Math.floor(n / keys.length) % 2 === 0);
    }
  }));
  return {
    /** Changes a key and asks every edge once the console has acknowledged it. */
    async change(browser: TestClient, key: WatchedKey, what: Change) {
      await change(browser, key, { what });
      await Promise.all(EDGES.map((edge) => ask(key, edge)));
    },
    /** Ends the load, which has got no wrong answer, and returns the counts. */
    async stop() {
      isOver = true;
      await loops;
      assert.deepEqual(wrong, []);
      return counts;
    },
  };
}

async function changesUnderLoad(
  gateway: LaunchedGateway,
  browser: TestClient,
): Promise<void> {
  const keys: WatchedKey[] = [];
  for (let n = 0; n < KEYS; n++) {
    keys.push(await createWatched(browser, `Changed under load, ${n}`));
  }
  const load = startLoad(gateway, keys);
  let rounds = 0;
  await Promise.all(keys.map(async (key) => {
    for (; rounds < ROUNDS; rounds++) {
      await load.change(browser, key, "disable");
      await load.change(browser, key, "enable");
    }
    await load.change(browser, key, "delete");
  }));
  const counts = await load.stop();
  assert.deepEqual([...counts.keys()].toSorted(), [200, 401, 403]);
  for (const status of [200, 403]) {
    const count = counts.get(status) ?? 0;
    // Those asked for after each change, and the load's beside them.
    const countMin = ROUNDS * EDGES.length + ROUNDS / 2;
    assert.ok(count >= countMin, `${count} answers of ${status}`);
  }
}

async function stopsRunning(
  gateway: LaunchedGateway,
  browser: TestClient,
): Promise<void> {
  const redis = await gateway.openRedis();
  const others = [await createWatched(browser, "Somebody else's")];
  const key = await createWatched(browser, "Stopped");
  const pair = await redis.command(["GET", hashKey(hashKeyValue(key.value))]);
  const [keyId = "", ownerId = ""] = String(pair).split(":");
  const leases = leaseKey({ keyId, ownerId });
  const countRunning = async () =>
    Number(await redis.command(["ZCARD", leases]));
  const load = startLoad(gateway, others);
  for (const what of ["disable", "delete"] as const) {
    const streams = startOnEveryEdge(gateway, key, { stream: true });
    const whole = startOnEveryEdge(gateway, key, { stream: false });
    // The head of a stream is not sent before its first token.
    await Promise.all(streams.map(({ answered }) => answered));
    const count = streams.length + whole.length;
    await until(async () => await countRunning() === count);
    const clickMs = performance.now();
    const more = { stop_running: "on" };
    const { headers } = await change(browser, key, { what, more });
    assert.match(headers.get("location") ?? "", /done=stopping/);
    // An error event, and no [DONE] after it: outcomeOf() refuses that.
    await assertStopped(streams, clickMs, { kind: "sse_error", status: 200 });
    await assertStopped(whole, clickMs, { kind: "http_error", status: 403 });
    await until(async () => await countRunning() === 0);
    if (what === "disable") await change(browser, key, { what: "enable" });
  }
  const counts = await load.stop();
  assert.deepEqual([...counts.keys()], [200], "the load noticed nothing");
}

/** A request that runs until it is stopped. */
interface Running {
  answered: Promise<Response>;
  /** How and when it ended, by `performance.now()`. */
  ended: Promise<{ outcome: ChatOutcome; atMs: number }>;
}

/** Starts {@link RUNNING} requests on each edge, for streams or whole answers. */
function startOnEveryEdge(
  gateway: LaunchedGateway,
  key: WatchedKey,
  { stream }: { stream: boolean },
): Running[] {
  const edges = EDGES.flatMap((edge) => Array<number>(RUNNING).fill(edge));
  return edges.map((edge) => {
    const body = { ...LONG, stream };
    const answered = gateway.ask(key.value, { edge, body });
    const ended = outcomeOf(answered)
      .then((outcome) => ({ outcome, atMs: performance.now() }));
    return { answered, ended };
  });
}

/** Each has ended soon after the click, with the error of a stopped key. */
async function assertStopped(
  requests: readonly Running[],
  clickMs: number,
  expected: Pick<ChatOutcome, "kind" | "status">,
): Promise<void> {
  for (const { ended } of requests) {
    const { outcome, atMs } = await ended;
    const errorCode = "key_revoked";
    assert.partialDeepStrictEqual(outcome, { ...expected, errorCode });
    assert.equal(outcome.content === "", expected.kind === "http_error");
    assert.ok(atMs - clickMs < STOP_MS_MAX, `${atMs - clickMs} ms`);
  }
}

async function disablesOwner(
  gateway: LaunchedGateway,
  browser: TestClient,
): Promise<void> {
  const email = "eve@example.org";
  const { text } = await browser.post("/people", { email });
  const link = matchIn(text, /(http:\S+\/link\/\w+)/);
  const eve = await openConsole(gateway, link);
  const { value } = await makeKey(eve, "Eve's");
  const people = (await browser.get("/people")).text;
  // Addresses may break before their dots and their `@`.
  const path = matchIn(people, /(\/people\/own_\w+)">eve</);
  for (const [what, status] of [["disable", 403], ["enable", 200]] as const) {
    await browser.post(path, { what });
    for (const edge of EDGES) {
      assert.equal(await readStatus(gateway.ask(value, { edge })), status);
    }
  }
}

/** Changes keys and owners in the console of a gateway with three edges. */
export async function checkConsoleEffect(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
  const browser = await openConsole(gateway);

  await t.step(
    "the next request is 403, 200 or 401",
    () => changesUnderLoad(gateway, browser),
  );

  await t.step(
    "running requests end within a second",
    () => stopsRunning(gateway, browser),
  );

  await t.step(
    "an owner is disabled: the next request is 403",
    () => disablesOwner(gateway, browser),
  );
}
