/** What budgets of money cost: keys with them beside one without, of one gateway. */
import { type Contender, KEY_LIMITS, type OurGateway } from "./contenders.ts";
import { costNotes } from "./figures.ts";
import { CHAT, type Lane, PRICED_MODEL } from "./lanes.ts";
import {
  CONNECTIONS,
  inTurn,
  LOOP_COLUMNS,
  measureLoop,
  measureStreams,
  STREAM_COLUMNS,
  STREAMS,
  streamTitle,
  warmUp,
} from "./measure.ts";
import type { Options } from "./options.ts";
import { OURS, type Table } from "./report.ts";

/** What a request with budgets may cost more, as a share. */
const TOLERANCE = 0.03;
/** Budgets that are never reached, of each kind. */
const MONTH_BUDGET = "--budget-month=1000000";
const BUDGETS = [
  "--budget-day=1000000",
  MONTH_BUDGET,
  "--budget-total=1000000",
];
const END_USERS = "user budget-day=1000000";

/** Chat completions of a model that has prices. */
const PRICED: Lane = {
  ...CHAT,
  body: (prompt, stream) => ({
    ...CHAT.body(prompt, stream),
    model: PRICED_MODEL,
    user: "bench",
  }),
};

/** A table of whole answers and one of streams, each with what budgets cost more. */
export async function* budgetCosts(
  ours: OurGateway,
  options: Options,
): AsyncGenerator<Table> {
  const keys = await keysOf(ours);
  await warmUp(keys, options.seconds);
  const whole = await inTurn(
    keys,
    options,
    (each) => measureLoop(each, options.seconds),
  );
  yield {
    title: `Budgets, whole, ${CONNECTIONS} connections`,
    columns: LOOP_COLUMNS,
    rows: whole,
    notes: costNotes(whole, {
      column: LOOP_COLUMNS.indexOf("CPU s per 1,000"),
      tolerance: TOLERANCE,
    }),
  };
  const rows = await inTurn(
    keys,
    options,
    (each) => measureStreams(each, STREAMS),
  );
  yield {
    title: streamTitle("budgets"),
    columns: STREAM_COLUMNS,
    rows,
    notes: costNotes(rows, {
      column: STREAM_COLUMNS.indexOf("CPU us per token"),
      tolerance: TOLERANCE,
    }),
  };
}

/** The same gateway with keys of other budgets; the first one has none. */
async function keysOf(ours: OurGateway): Promise<Contender[]> {
  const { gateway } = ours;
  const create = async (...options: string[]) =>
    (await gateway.createKey(...KEY_LIMITS, ...options)).key;
  const project = "--name=bench";
  const { id } = JSON.parse(
    await gateway.command("projects", "create", project),
  );
  await gateway.command("projects", "limits", id, ...BUDGETS);
  const keys: [name: string, key: string][] = [
    ["", ours.key],
    [": a month of the key", await create(MONTH_BUDGET)],
    [": three of the key", await create(...BUDGETS)],
    [": and its account", await create(`--project=${id}`, ...BUDGETS)],
    [": of end users", await create(`--end-users=${END_USERS}`)],
  ];
  return keys.map(([name, key]) => ({
    ...ours,
    name: `${OURS}${name}`,
    lane: PRICED,
    headers: { authorization: `Bearer ${key}` },
  }));
}
