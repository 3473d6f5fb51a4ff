/** What operators have changed beside the list of models, as an edge follows it. */
import {
  decodeOverrides,
  encodeOverrides,
  type Override,
  Overrides,
  OVERRIDES_KEY,
  readOverrides,
} from "@gateway/shared/backends/overrides";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { OVERRIDES_QUEUE, subjects } from "@gateway/shared/bus/subjects";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";

const texts = z.array(z.string());

/**
 * Disables models of the catalog as operators wish, and tells workers that start what
 * they have changed. Resolves when that is known: key-admin need not run for it.
 */
export async function followOverrides(
  { bus, redis, catalog, log }: {
    bus: Pick<BusLink, "subscribe" | "publish" | "isConnected">;
    redis: Pick<RedisLink, "command">;
    catalog: Pick<ModelCatalog, "disable">;
    log: Pick<Log, "warn">;
  },
): Promise<void> {
  const overrides = new Overrides();
  let current: readonly Override[] | null = null;
  const take = (list: readonly Override[]) => {
    current = list;
    overrides.take(list);
    catalog.disable(overrides.disabled);
  };
  bus.subscribe(subjects.overrides, ({ data }) => {
    const list = decodeOverrides(data);
    if (list !== null) take(list);
  });
  try {
    const values = texts.parse(await redis.command(["HVALS", OVERRIDES_KEY]));
    // What came on the bus meanwhile is newer.
    if (current === null) take(readOverrides(values));
  } catch (error) {
    log.warn("overrides_unread", {
      error,
      message: "Which models are disabled is unknown until key-admin tells it",
    });
  }
  bus.subscribe(subjects.overridesWanted, ({ reply = "" }) => {
    if (reply === "" || current === null || !bus.isConnected) return;
    bus.publish(reply, encodeOverrides(current));
  }, { queue: OVERRIDES_QUEUE });
}
