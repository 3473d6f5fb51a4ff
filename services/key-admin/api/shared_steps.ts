/** What several routes do. */
import type { KeyState, Principal } from "@gateway/shared/keys/record";
import { formatAmount } from "@gateway/shared/money/amount";
import { runningKeys } from "../domain/operators/running_keys.ts";
import { unknownModel } from "../domain/keys/settings.ts";
import type { Totals } from "../domain/keys/usage.ts";
import type { RowPage } from "../domain/store/redis.ts";
import { type AdminDeps, AdminRefused } from "./route.ts";

/** Throws unless there is an owner or a project of this id. */
export async function checkAccount(
  { people }: Pick<AdminDeps, "people">,
  id: string,
): Promise<void> {
  if (await people.name(id) !== null) return;
  const message = "There is no account of this id";
  throw new AdminRefused("not_found", message, { param: "account" });
}

/** A page of a list under a name. */
export const pageJson = <Row>(
  name: string,
  { rows, next, isPartial = false }: RowPage<Row>,
  jsonOf: (row: Row) => object,
) => ({
  [name]: rows.map(jsonOf),
  next,
  ...isPartial && { partial: true },
});

/** What was used today, as rows of lists say it. */
export const usedToday = (
  { requests, tokens, cost }: Pick<Totals, "requests" | "tokens" | "cost">,
) => ({
  requests_today: requests,
  tokens_today: tokens,
  cost_today: formatAmount(cost),
});

/** Ends what runs with keys that nobody can use any more. */
export async function stopKeys(
  { sendStop }: Pick<AdminDeps, "sendStop">,
  keys: readonly Principal[],
): Promise<void> {
  await sendStop(keys).catch((cause) => {
    const message =
      "It is done, but NATS or Redis does not answer: running requests end within 11 seconds instead of one";
    throw new AdminRefused("unavailable", message, { cause });
  });
}

/** Throws unless an account is disabled, or is to be: others may go on. */
export async function checkStoppable(
  { owners }: Pick<AdminDeps, "owners">,
  id: string,
  wanted: KeyState | undefined,
): Promise<void> {
  const state = wanted ?? (await owners.standing(id)).state;
  if (state === "disabled") return;
  const message = "Only what runs for a disabled account can be stopped";
  throw new AdminRefused("invalid_value", message, { param: "stop_running" });
}

/** Ends what runs with the keys of an account that is disabled. */
export const stopAccount = async (
  deps: Pick<AdminDeps, "sendStop" | "redis">,
  id: string,
): Promise<void> => await stopKeys(deps, await runningKeys(deps.redis, id));

/** The ids of models that are named by ids or aliases. Throws if one is unknown. */
export function modelIds(
  { modelNames }: Pick<AdminDeps, "modelNames">,
  names: readonly string[],
  { isForced = false, before = [] }: {
    /** Whether models that are not in the list are accepted. */
    isForced?: boolean;
    /** Models that may stay, although they are in the list no more. */
    before?: readonly string[];
  } = {},
): string[] {
  const ids = names.map((name) => modelNames.find(name)?.id ?? name);
  const listedIds = modelNames.ids();
  const fault = listedIds && !isForced &&
    unknownModel(ids, [...listedIds, ...before]);
  if (!fault) return [...new Set(ids)];
  throw new AdminRefused("invalid_value", fault, { param: "models" });
}
