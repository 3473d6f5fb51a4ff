/** Sends the overrides of operators to edges and workers. */
import {
  encodeOverrides,
  OVERRIDES_REPEAT_MS,
} from "@gateway/shared/backends/overrides";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { OVERRIDES_QUEUE, subjects } from "@gateway/shared/bus/subjects";
import { settlesWithin } from "@gateway/shared/process/lifecycle/serve";
import type { WallNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { gauge, type MetricRegistry } from "@gateway/shared/process/metrics";
import type { OverrideStore, StoredOverride } from "./override_store.ts";

const MS_PER_SECOND = 1_000;
/** A page waits for this. */
const FLUSH_MS = 500;

type Bus = Pick<BusLink, "isConnected" | "publish" | "subscribe" | "flush">;

/**
 * Sends the overrides now. Returns false if the bus is down: key-admin repeats them, so
 * that processes which miss them hear of them a few seconds later.
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

/** The overrides as metrics, in each key-admin. */
export const OVERRIDE_METRICS = {
  age: gauge("gateway_override_age_seconds", {
    help:
      "How long ago an operator has changed something beside the list of models that still holds. `what`: `drain` (a server gets no requests), `weight`, `disable` (a model; `backend` is empty).",
    labels: ["what", "model", "backend"],
  }),
};

/** Shows these overrides as metrics. */
export function observeOverrides(
  registry: Pick<MetricRegistry, "gauge">,
  read: () => readonly StoredOverride[],
  wallNow: WallNow,
): void {
  registry.gauge(OVERRIDE_METRICS.age, function* () {
    const nowMs = wallNow();
    for (const override of read()) {
      const { what, model, atMs } = override;
      const backend = what === "disable" ? "" : override.backend;
      yield [[what, model, backend], Math.max(0, nowMs - atMs) / MS_PER_SECOND];
    }
  });
}

/**
 * Repeats the overrides every few seconds, and answers workers that start. Returns a
 * function that ends it. Without Redis, edges and workers keep what they know.
 */
export function repeatOverrides(
  { bus, overrides, log, onList = () => {} }: {
    bus: Bus;
    overrides: Pick<OverrideStore, "list">;
    log: Pick<Log, "debug">;
    /** Called with what was read at each repeat. */
    onList?: (list: readonly StoredOverride[]) => void;
  },
): () => void {
  const failed = (error: unknown) => log.debug("overrides_untold", { error });
  bus.subscribe(subjects.overridesWanted, ({ reply = "" }) => {
    if (reply === "") return;
    overrides.list().then((list) => {
      if (bus.isConnected) bus.publish(reply, encodeOverrides(list));
    }).catch(failed);
  }, { queue: OVERRIDES_QUEUE });
  const repeat = async () => {
    const list = await overrides.list();
    onList(list);
    await tellOverrides({
      bus,
      overrides: { list: () => Promise.resolve(list) },
    });
  };
  const timer = setInterval(() => {
    repeat().catch(failed);
  }, OVERRIDES_REPEAT_MS);
  return () => clearInterval(timer);
}
