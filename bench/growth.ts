/** How the cost of a request grows with processes, keys and open streams. */
import { createClient } from "redis";
import { randomBytes } from "@gateway/shared/process/ids";
import { hashKeyValue, mintKey, mintKeyId } from "@gateway/shared/keys/key";
import { hashKey, recordKey } from "@gateway/shared/keys/record";
import { sleep } from "../tests/support/wait_for.ts";
import { type Gateway, startGateway } from "./contenders.ts";
import { chatRequest, runStreams } from "./load.ts";
import {
  CONNECTIONS,
  countWrong,
  type Effort,
  measureLoop,
  WHOLE_COLUMNS,
} from "./measure.ts";
import type { Table } from "./report.ts";

const INSTANCES = [1, 2, 4];
const KEYS = [1, 1_000, 1_000_000];
const OPEN_STREAMS = [10, 500, 2_000];
/** At most so many different keys are sent. */
const SENT_KEYS_MAX = 10_000;
/** Keys added by one script call. */
const BATCH = 1_000;
/** What opening streams and warming up take. */
const BEFORE_SECONDS = 5;

/** Tokens so rare cost nothing, but a model server that is silent for longer is given up. */
const OPEN_PACE_MS = 10_000;

/** ARGV: a record, then of each copy its look-up, what that says, and its record. */
const COPY_KEYS = `for i = 2, #ARGV, 3 do
  redis.call('SET', ARGV[i], ARGV[i + 1])
  redis.call('COPY', ARGV[1], ARGV[i + 2])
end`;

/** Each table as it is ready. */
export async function* growth(
  modelUrl: string,
  effort: Effort,
): AsyncGenerator<Table> {
  yield await table("edges and workers", INSTANCES, async (instances) => {
    await using gateway = await startGateway(modelUrl, { instances });
    return await rounds(gateway, effort);
  });
  await using gateway = await startGateway(modelUrl, {
    env: { SLOTS: "4096" },
  });
  yield await table("open streams", OPEN_STREAMS, async (count) => {
    const seconds = BEFORE_SECONDS + effort.seconds * effort.rounds;
    // All are open in the second half of twice that time.
    const tokens = Math.ceil(2_000 * seconds / OPEN_PACE_MS);
    const pace = { tokens, paceMs: OPEN_PACE_MS };
    const opened = runStreams(gateway, count, pace);
    await sleep(1_000 * seconds);
    const figures = await rounds(gateway, effort);
    const wrong = countWrong(gateway, await opened);
    return figures.map(([a = NaN, b = NaN, c = 0]) => [a, b, c + wrong]);
  });
  const values: string[] = [];
  yield await table("API keys", KEYS, async (count) => {
    await addKeys(gateway, values, count);
    const requests = values.slice(-SENT_KEYS_MAX).map((value) =>
      chatRequest({
        ...gateway,
        headers: { authorization: `Bearer ${value}` },
      }, 200)
    );
    return await rounds(gateway, effort, requests);
  });
}

async function table(
  what: string,
  counts: readonly number[],
  measure: (count: number) => Promise<number[][]>,
): Promise<Table> {
  const rows = [];
  for (const count of counts) {
    rows.push({ name: `${count} ${what}`, rounds: await measure(count) });
  }
  const title =
    `Growth with ${what}: whole answers, ${CONNECTIONS} connections`;
  return { title, columns: WHOLE_COLUMNS, rows };
}

async function rounds(
  gateway: Gateway,
  { seconds, rounds, stopping }: Effort,
  requests?: Uint8Array[],
): Promise<number[][]> {
  await measureLoop(gateway, 1, requests);
  const figures = [];
  for (let round = 0; round < rounds; round += 1) {
    stopping.throwIfAborted();
    figures.push(await measureLoop(gateway, seconds, requests));
  }
  return figures;
}

/** Gives the gateway `count` keys like the one it has. */
async function addKeys(
  gateway: Gateway,
  values: string[],
  count: number,
): Promise<void> {
  const redis = createClient({ url: gateway.cluster.state.redis_url });
  await redis.connect();
  const [, first = ""] = gateway.headers.authorization?.split(" ") ?? [];
  if (values.length === 0) values.push(first);
  const found = await redis.get(hashKey(hashKeyValue(first))) ?? "";
  const [keyId = "", ownerId = ""] = found.split(":");
  while (values.length < count) {
    const copies = Math.min(BATCH, count - values.length);
    const copied = Array.from({ length: copies }, () => {
      const value = mintKey(randomBytes);
      const id = mintKeyId(randomBytes);
      values.push(value);
      return [
        hashKey(hashKeyValue(value)),
        `${id}:${ownerId}`,
        recordKey({ keyId: id, ownerId }),
      ];
    });
    await redis.eval(COPY_KEYS, {
      arguments: [recordKey({ keyId, ownerId }), ...copied.flat()],
    });
  }
  await redis.close();
}
