/** Prints who gets the slots of a queue in simulated hours, and in a day. */
import { print } from "../../tests/support/process.ts";
import { contest } from "./fairness.ts";
import { CONTESTS } from "./contests.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const CLUSTER = { workers: 4, slots: 4, answerMs: 4_000 };
const MS_PER_SECOND = 1_000;

/** Prints a table for each contest. */
export async function measureQueue(): Promise<void> {
  print("\nFour edges and 16 slots, simulated");
  for (const { name, parties, isLong = false } of CONTESTS) {
    const lengthMs = isLong ? DAY_MS : HOUR_MS;
    const result = await contest({ ...CLUSTER, parties, lengthMs });
    const { portions, counts, answered, sentBack, used } = result;
    print(`\n${name}, for ${isLong ? "a day" : "an hour"}`);
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
        `${each(counts.turns)} turns told, ${each(counts.returns)} returned, ` +
        `${each(sentBack)} sent back`,
    );
  }
}

const percent = (share: number): string =>
  `${(100 * share).toFixed(2).padStart(5)} %`;
