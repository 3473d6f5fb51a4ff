/** How the cost of a request grows with processes and open streams. */
import { sleep } from "../tests/support/wait_for.ts";
import { type Contender, startGateway } from "./contenders.ts";
import { runStreams } from "./load.ts";
import { CONNECTIONS, inTurn, LOOP_COLUMNS, measureLoop } from "./measure.ts";
import type { Options } from "./options.ts";
import type { Row, Table } from "./report.ts";

const INSTANCES = [1, 2, 4];
/** Each process has to compile its hot code, so more of them need more time for that. */
const WARM_UP_SECONDS = 3;
const OPEN_STREAMS = [10, 500, 2_000];
/** What opening streams and warming up take. */
const BEFORE_SECONDS = 7;
/** Tokens so rare cost nothing, but a model server that is silent for longer is given up. */
const OPEN_PACE_MS = 10_000;

export async function growth(
  modelUrl: string,
  options: Options,
): Promise<Table> {
  const rows: Row[] = [];
  const notes: string[] = [];
  const measure = async (name: string, gateway: Contender, instances = 1) => {
    // The same load for each edge: the less one has to do, the fewer requests share a write.
    const connections = instances * CONNECTIONS;
    const loop = (seconds: number) =>
      measureLoop(gateway, seconds, { connections });
    await loop(instances * WARM_UP_SECONDS);
    const named = [{ ...gateway, name }];
    rows.push(...await inTurn(named, options, () => loop(options.seconds)));
  };
  for (const instances of INSTANCES) {
    await using gateway = await startGateway(modelUrl, { instances });
    await measure(`${instances} edges and workers`, gateway, instances);
  }
  const env = { SLOTS: "4096" };
  await using gateway = await startGateway(modelUrl, { env });
  const seconds = BEFORE_SECONDS + options.seconds * options.rounds;
  for (const count of OPEN_STREAMS) {
    // All are open in the second half of twice that time.
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
  const title =
    `Growth: whole answers, ${CONNECTIONS} connections to each edge`;
  return { title, columns: LOOP_COLUMNS, rows, notes };
}
