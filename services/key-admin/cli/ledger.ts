/** `ledger …`: checks that the charges of keys and accounts add up. */
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import { formatAmount, parseAmount } from "@gateway/shared/money/amount";
import { z } from "zod";
import {
  checkLedger,
  compareLog,
  type LedgerDifference,
  type LoggedCharge,
} from "../domain/ledger/ledger.ts";
import { localOf } from "./accounts.ts";
import {
  type Area,
  CommandRefused,
  type Invocation,
  type Output,
} from "./command_line.ts";

const SHOWN_MAX = 20;

async function check(invocation: Invocation): Promise<Output> {
  const { now, options } = invocation;
  const local = localOf(invocation, "ledger check");
  const { redis, audit, people, budgetZone } = local;
  const days = new BudgetDays(budgetZone);
  const deps = { redis, audit, days, nowMs: now() };
  const report = await checkLedger(deps, people.accounts());
  const charges: LoggedCharge[] = [];
  for (const file of options.log ?? []) {
    const text = await local.readFile(file).catch((cause) => {
      throw new CommandRefused(`${file} cannot be read`, { cause });
    });
    charges.push(...chargesIn(text, file));
  }
  const { accounts, keys, days: daysCompared, cost, estimated } = report;
  const inLog = compareLog(report, charges, options.unlogged);
  const differences = [...report.differences, ...inLog.differences];
  if (differences.length > 0) {
    const lines = differences.slice(0, SHOWN_MAX).map(lineOf);
    throw new CommandRefused(
      [
        `The ledger does not add up; differences: ${differences.length}`,
        ...lines,
      ]
        .join("\n"),
    );
  }
  return {
    json: {
      accounts,
      keys,
      days: daysCompared,
      cost: formatAmount(Number(cost)),
      estimated: formatAmount(Number(estimated)),
      log_lines: charges.length,
      unlogged_requests: Number(inLog.unlogged.requests),
      unlogged_cost: formatAmount(Number(inLog.unlogged.cost)),
      differences: 0,
    },
  };
}

const lineOf = ({ account, day, what, parts, whole }: LedgerDifference) =>
  `${
    [account, day, what].filter(Boolean).join(" ")
  }: ${parts} by its parts, ${whole} as a whole`;

const charged = z.object({
  keyId: z.string(),
  model: z.string(),
  cost: z.string(),
});

/** The charges of the requests in the lines of a log; other lines are passed over. */
function chargesIn(text: string, file: string): LoggedCharge[] {
  return text.split("\n").flatMap((line, index): LoggedCharge[] => {
    if (!line.startsWith("{")) return [];
    const { data } = charged.safeParse(parsed(line, `${index + 1} of ${file}`));
    const nanos = data && parseAmount(data.cost);
    if (data === undefined || typeof nanos !== "number") return [];
    return [{ keyId: data.keyId, model: data.model, nanos: BigInt(nanos) }];
  });
}

function parsed(line: string, place: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    throw new CommandRefused(
      `Line ${place} is no JSON, so what it charged is unknown. ` +
        "If it is being written, take a copy that ends with a whole line",
    );
  }
}

/** The commands on the ledger. */
export const LEDGER: Area = {
  title: "Check that what was charged adds up.",
  commands: [
    {
      usage: "check",
      help: "compare the sums of keys with those of their accounts",
      run: check,
      options: ["log", "unlogged"],
    },
  ],
  notes:
    `Compares each counter of each day, cost to the billionth, and what budgets show as held
with what running requests hold. With --log, what the lines of all edges say that
requests were charged with what their keys were charged, for the keys and models that
they name: the files must have all lines of the days that are kept (LOG_SAMPLE=1), those
of one edge after the other or mixed. "estimated" is the part of the cost that was charged
for requests whose edge was lost, which no line has. An edge that is killed may also have
settled requests and not have written their lines. Then the comparison says how many
lines are missing; with --unlogged N it takes up to N for that, says what these requests
were charged ("unlogged_cost"), and fails only for other differences.`,
};
