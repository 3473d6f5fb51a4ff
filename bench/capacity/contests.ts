/** What is simulated to see who gets the slots of a queue: docs/evidence/limits.md. */
import type { Party } from "./fairness.ts";

/** A contest between keys at four edges. */
export interface NamedContest {
  readonly name: string;
  readonly parties: readonly Party[];
}

/** The key of an account that has only one. */
const party = (
  account: string,
  clients: readonly number[],
  more: Omit<Partial<Party>, "account" | "clients"> = {},
): Party => ({ account, key: `${account}-key`, clients, ...more });

/** Contests that differ in what is asked, and where. */
export const CONTESTS: readonly NamedContest[] = [
  {
    name: "one account at each edge, of 100, 40, 16 and 10 clients",
    parties: [
      party("A", [100, 0, 0, 0]),
      party("B", [0, 40, 0, 0]),
      party("C", [0, 0, 16, 0]),
      party("D", [0, 0, 0, 10]),
    ],
  },
  {
    name: "three accounts at all edges",
    parties: [
      party("A", [40, 40, 40, 40]),
      party("B", [10, 10, 10, 10]),
      party("C", [5, 5, 5, 5]),
    ],
  },
  {
    name: "weights of 1, 2 and 4, at all edges",
    parties: [
      party("A", [12, 12, 12, 12], { weight: 1 }),
      party("B", [12, 12, 12, 12], { weight: 2 }),
      party("C", [12, 12, 12, 12], { weight: 4 }),
    ],
  },
  {
    name: "weights of 1 and 3, each at two edges",
    parties: [
      party("A", [24, 24, 0, 0], { weight: 1 }),
      party("B", [0, 0, 24, 24], { weight: 3 }),
    ],
  },
  {
    name: "two keys of one account, of weights 1 and 3, beside another account",
    parties: [
      party("A", [12, 12, 12, 12], { key: "A-1", keyWeight: 1 }),
      party("A", [12, 12, 12, 12], { key: "A-2", keyWeight: 3 }),
      party("B", [12, 12, 12, 12]),
    ],
  },
  {
    name: "requests of 400 tokens at two edges, of 100 at the others",
    parties: [
      party("A", [24, 24, 0, 0], { tokens: 400 }),
      party("B", [0, 0, 48, 48], { tokens: 100 }),
    ],
  },
  {
    name: "one account at one edge, nine at another",
    parties: [
      party("A", [200, 0, 0, 0]),
      ...Array.from("BCDEFGHIJ", (name) => party(name, [0, 8, 0, 0])),
    ],
  },
];

/** A contest for a day, of few clients with long answers. */
export const DAY: NamedContest = {
  name: "a day: weights of 1, 2 and 4, at all edges",
  parties: [
    party("A", [4, 4, 4, 4], { weight: 1 }),
    party("B", [4, 4, 4, 4], { weight: 2 }),
    party("C", [6, 6, 6, 6], { weight: 4 }),
  ],
};
