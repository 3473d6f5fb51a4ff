/** Tells edges and workers what operators have changed beside the list of models. */
import {
  encodeOverrides,
  OVERRIDES_REPEAT_MS,
} from "@gateway/shared/backends/overrides";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { OVERRIDES_QUEUE, subjects } from "@gateway/shared/bus/subjects";
import { settlesWithin } from "@gateway/shared/process/lifecycle/serve";
import type { Log } from "@gateway/shared/process/log";
import type { OverrideStore } from "./override_store.ts";

/** A page waits for this. */
const FLUSH_MS = 500;

type Bus = Pick<BusLink, "isConnected" | "publish" | "subscribe" | "flush">;

/**
 * Tells everybody now. False if the bus is down: key-admin repeats it, so that those
 * that miss it hear of it a few seconds later.
 */
export async function tellOverrides(
  { bus, overrides }: {
    bus: Pick<Bus, "isConnected" | "publish" | "flush">;
    overrides: Pick<OverrideStore, "list">;
  },
): Promise<boolean> {
  const message = encodeOverrides(await overrides.list());
  if (!bus.isConnected) return false;
  bus.publish(subjects.overrides, message);
  return await settlesWithin(bus.flush(), FLUSH_MS);
}

/**
 * Repeats the overrides every few seconds, and answers workers that start. Returns a
 * function that ends it. Without Redis, edges and workers keep what they know.
 */
export function repeatOverrides(
  { bus, overrides, log }: {
    bus: Bus;
    overrides: Pick<OverrideStore, "list">;
    log: Pick<Log, "debug">;
  },
): () => void {
  const failed = (error: unknown) => log.debug("overrides_untold", { error });
  bus.subscribe(subjects.overridesWanted, ({ reply = "" }) => {
    if (reply === "") return;
    overrides.list().then((list) => {
      if (bus.isConnected) bus.publish(reply, encodeOverrides(list));
    }).catch(failed);
  }, { queue: OVERRIDES_QUEUE });
  const timer = setInterval(() => {
    tellOverrides({ bus, overrides }).catch(failed);
  }, OVERRIDES_REPEAT_MS);
  return () => clearInterval(timer);
}
