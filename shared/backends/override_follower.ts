/** The overrides of operators, as a worker hears of them. */
import { decodeOverrides, Overrides } from "./overrides.ts";
import type { BusHandler, BusMessage } from "../bus/link.ts";
import { subjects } from "../bus/subjects.ts";
import type { Log } from "../process/log.ts";

const EMPTY = new Uint8Array(0);
/** A worker that starts while nobody can tell begins with the list as it is. */
const ASK_MS = 1_000;

/** What it needs of the bus. */
interface Bus {
  subscribe(subject: string, handler: BusHandler): unknown;
  request(
    subject: string,
    payload: Uint8Array,
    options: { timeoutMs: number },
  ): Promise<BusMessage>;
}

/**
 * Follows the overrides, and resolves when they are known: key-admin, or an edge, is
 * asked for them. If nobody answers, none hold until key-admin tells them.
 */
export async function followOverrides(
  bus: Bus,
  log: Pick<Log, "info">,
): Promise<Overrides> {
  const overrides = new Overrides();
  const take = ({ data }: Pick<BusMessage, "data">) => {
    const list = decodeOverrides(data);
    if (list !== null) overrides.take(list);
  };
  bus.subscribe(subjects.overrides, take);
  try {
    const options = { timeoutMs: ASK_MS };
    take(await bus.request(subjects.overridesWanted, EMPTY, options));
  } catch (error) {
    log.info("overrides_unknown", {
      error,
      message: "Nobody has told which servers are drained: none is, until then",
    });
  }
  return overrides;
}
