/** How the cost of a request grows with processes, keys and open streams. */
import { createClient } from "redis";
import { randomBytes } from "@gateway/shared/process/ids";
import { hashKeyValue, mintKey, mintKeyId } from "@gateway/shared/keys/key";
import { hashKey, recordKey } from "@gateway/shared/keys/record";
import { sleep } from "../tests/support/wait_for.ts";
import { type OurGateway, startOurs } from "./contenders.ts";
import { requestTo, runStreams } from "./load.ts";
import { CONNECTIONS, inTurn, LOOP_COLUMNS, measureLoop } from "./measure.ts";
import type { Options } from "./options.ts";
import type { Row, Table } from "./report.ts";

const INSTANCES = [1, 2, 4];
/**
 * Each process has to compile its hot code, so more of them need more time for that.
 */
const WARM_UP_SECONDS = 3;
const KEYS = [1, 1_000, 1_000_000];
const OPEN_STREAMS = [10, 500, 2_000];
/** How many of the keys are sent at most. */
const SENT_KEYS_MAX = 10_000;
/** Keys added by one script call. */
const BATCH = 1_000;
/** What opening streams and warming up take. */
const BEFORE_SECONDS = 7;
/**
 * Tokens so rare cost nothing, but a model server that is silent for longer is given
 * up.
 */
const OPEN_PACE_MS = 10_000;

/** ARGV: a record, then of each copy its look-up, what that says, and its record. */
const COPY_KEYS = `for i = 2, #ARGV, 3 do
  redis.call('SET', ARGV[i], ARGV[i + 1])
  redis.call('COPY', ARGV[1], ARGV[i + 2])
end`;

/** Measures processes, open streams and keys, one more after the other. */
export async function growth(
  modelUrl: string,
  options: Options,
): Promise<Table> {
  const rows: Row[] = [];
  const notes: string[] = [];
  const measure = async (
    name: string,
    gateway: OurGateway,
    { requests, instances = 1 }: {
      requests?: Uint8Array[];
      instances?: number;
    } = {},
  ) => {
    // The same load for each edge: the less one has to do, the fewer requests share a
    // write.
    const connections = instances * CONNECTIONS;
    const loop = (seconds: number) =>
      measureLoop(gateway, seconds, { requests, connections });
    await loop(instances * WARM_UP_SECONDS);
    const contenders = [{ ...gateway, name }];
    rows.push(
      ...await inTurn(contenders, options, () => loop(options.seconds)),
    );
  };
  for (const instances of INSTANCES) {
    await using gateway = await startOurs(modelUrl, { instances });
    const name = `${instances} edges and workers`;
    await measure(name, gateway, { instances });
  }
  const env = { SLOTS: "4096" };
  await using gateway = await startOurs(modelUrl, { env });
  const seconds = BEFORE_SECONDS + options.seconds * options.rounds;
  for (const count of OPEN_STREAMS) {
    // They last for twice as long as the measurement, which begins in the middle.
    const tokens = Math.ceil(2_000 * seconds / OPEN_PACE_MS);
    const pace = { tokens, paceMs: OPEN_PACE_MS };
    const opened = runStreams(gateway, count, pace);
    await sleep(1_000 * seconds);
    await measure(`${count} open streams`, gateway);
    const { wrong } = await opened;
    if (wrong.length > 0) {
      notes.push(`${wrong.length} of ${count} streams broke, as ${wrong[0]}`);
    }
  }
  const values = [gateway.key];
  for (const count of KEYS) {
    await addKeys(gateway, values, count);
    const requests = values.slice(-SENT_KEYS_MAX).map((value) => {
      const headers = { authorization: `Bearer ${value}` };
      return requestTo({ ...gateway, headers }, 200);
    });
    await measure(`${count} API keys`, gateway, { requests });
  }
  const title =
    `Growth: whole answers, ${CONNECTIONS} connections to each edge`;
  return { title, columns: LOOP_COLUMNS, rows, notes };
}

/** Gives the gateway `count` keys like the one it has. */
async function addKeys(
  { key, gateway }: OurGateway,
  values: string[],
  count: number,
): Promise<void> {
  const redis = createClient({ url: gateway.state.redis_url });
  await redis.connect();
  const found = await redis.get(hashKey(hashKeyValue(key))) ?? "";
  const [keyId = "", ownerId = ""] = found.split(":");
  while (values.length < count) {
    const args = [recordKey({ keyId, ownerId })];
    for (let left = Math.min(BATCH, count - values.length); left > 0; left--) {
      const [value, id] = [mintKey(randomBytes), mintKeyId(randomBytes)];
      values.push(value);
      args.push(hashKey(hashKeyValue(value)), `${id}:${ownerId}`);
      args.push(recordKey({ keyId: id, ownerId }));
    }
    await redis.eval(COPY_KEYS, { arguments: args });
  }
  await redis.close();
}
