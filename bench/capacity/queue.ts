/** Prints who gets the slots of a queue in simulated minutes, and in a day. */
import { print } from "../../tests/support/process.ts";
import { type Contest, contest } from "./fairness.ts";
import { CONTESTS, DAY, type NamedContest } from "./contests.ts";

const MINUTE_MS = 60_000;
const CLUSTER = { workers: 4, slots: 4 };
const SHORT = { answerMs: 4_000, lengthMs: 20 * MINUTE_MS };
const LONG = { answerMs: 20_000, lengthMs: 24 * 60 * MINUTE_MS };
const MS_PER_SECOND = 1_000;

/** Prints the shares of each contest. */
export async function measureQueue(): Promise<void> {
  print("\nFour edges and 16 slots, simulated");
  for (const each of CONTESTS) await measure(each, SHORT);
  await measure(DAY, LONG);
}

async function measure(
  { name, parties }: NamedContest,
  times: Pick<Contest, "answerMs" | "lengthMs">,
): Promise<void> {
  const result = await contest({ ...CLUSTER, ...times, parties });
  const { portions, counts, answered, sentBack, used } = result;
  print(`\n${name}`);
  for (const { party, expected, got, requests, longestWaitMs } of portions) {
    print([
      party.key.padEnd(8),
      `expected ${percent(expected)} got ${percent(got)}`,
      `${requests} requests`,
      `longest wait ${(longestWaitMs / MS_PER_SECOND).toFixed(0)} s`,
    ].join("  "));
  }
  const each = (count: number) => (count / answered).toFixed(3);
  print(
    `slots in use ${percent(used)}; for each request ` +
      `${each(counts.turns)} turns announced, ${
        each(counts.returns)
      } returned, ` +
      `${each(sentBack)} sent back`,
  );
}

const percent = (share: number): string =>
  `${(100 * share).toFixed(2).padStart(5)} %`;
