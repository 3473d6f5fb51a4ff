/** The work of a key-admin that no request asks for. */
import type { Catalog, ModelCatalog } from "@gateway/shared/models/catalog";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import type { ServiceTools } from "@gateway/shared/process/lifecycle/service";
import type { Config } from "./config.ts";
import {
  observeOverrides,
  repeatOverrides,
  tellOverrides,
} from "./domain/models/override_teller.ts";
import type { StoredOverride } from "./domain/models/override_store.ts";
import { Notices, type NoticesOptions } from "./domain/notices/notices.ts";
import { keepCurrency } from "./domain/ledger/currency.ts";
import { followWorkers } from "./domain/models/worker_follower.ts";
import { linkPath } from "./domain/sign_in/links.ts";
import { RunningRequests } from "./domain/running/running_requests.ts";
import { DayKeeper, type DayKeeperOptions } from "./domain/usage/day_keeper.ts";
import type { ConsoleDeps } from "./web/context.ts";

/** Follows the workers, and tells them and the edges the overrides of operators. */
export function followAndTell(
  { bus: access }: Config,
  { overrides, catalog }: Pick<ConsoleDeps, "overrides"> & {
    catalog: ModelCatalog;
  },
  { log, registry }: ServiceTools,
) {
  const workers = followWorkers({ access, catalog, log });
  const { bus } = workers;
  let held: readonly StoredOverride[] = [];
  observeOverrides(registry, () => held, wallNow);
  const stopRepeating = repeatOverrides({
    bus,
    overrides,
    log,
    onList(list) {
      held = list;
    },
  });
  const ids = { now: monotonicNow, newId: newInstanceId };
  return {
    workers,
    running: new RunningRequests({ bus, ...ids }),
    tellOverrides: () => tellOverrides({ bus, overrides }),
    async stop() {
      stopRepeating();
      await workers.stop();
    },
  };
}

/** The parts of key-admin that notices need. */
interface NoticeParts
  extends Pick<NoticesOptions, "redis" | "keys" | "people" | "now"> {
  readonly catalog: Pick<Catalog, "prices">;
}

/**
 * Starts to send notices of budgets and of keys that expire. Returns the function that
 * ends this.
 */
function startNotices(
  { budgetZone, noticeTarget: target }: Config,
  { catalog, ...parts }: NoticeParts,
  tools: ServiceTools,
): () => Promise<void> {
  const days = new BudgetDays(budgetZone);
  const notices = new Notices({
    ...parts,
    ...tools,
    currency: () => catalog.prices.currency,
    days,
    target,
  });
  notices.start();
  return () => notices.stop();
}

/**
 * Starts to send notices and to keep the usage of days. Returns the function that ends
 * both.
 */
export function startWork(
  config: Config,
  parts: NoticeParts & Omit<DayKeeperOptions, "log">,
  tools: ServiceTools,
): () => Promise<void> {
  const stopNotices = startNotices(config, parts, tools);
  const keeper = new DayKeeper({ ...parts, log: tools.log });
  keeper.start();
  return async () => {
    await Promise.all([stopNotices(), keeper.stop()]);
  };
}

/** What {@link announce} needs. */
type AnnounceDeps = Pick<
  ConsoleDeps,
  "redis" | "catalog" | "owners" | "links" | "log" | "publicUrl"
>;

/** Logs what operators must know at a start. */
export async function announce(deps: AnnounceDeps): Promise<void> {
  await announceCurrency(deps);
  await announceSetUp(deps);
}

/**
 * Warns once that the currency has changed: amounts that were counted are not
 * converted.
 */
async function announceCurrency(
  { redis, catalog, log }: Pick<ConsoleDeps, "redis" | "catalog" | "log">,
): Promise<void> {
  const { currency } = catalog.prices;
  const before = await keepCurrency(redis, currency);
  if (before === null) return;
  log.warn("currency_changed", {
    before,
    currency,
    message: `Budgets and what was spent in ${before} now count as ${currency}`,
  });
}

/** While the first owner cannot sign in, every start prints a new set-up link. */
async function announceSetUp(deps: AnnounceDeps): Promise<void> {
  const { owners, links, log, publicUrl } = deps;
  if (await owners.setUpAccount() !== null) return;
  const ownerId = await owners.first();
  const secret = await links.make({ kind: "set_up", ownerId });
  log.notice("setup_link", {
    url: new URL(linkPath(secret), publicUrl).href,
    message: "Sets up the console; works once, within 15 minutes",
  });
}
