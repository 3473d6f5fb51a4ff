/**
 * Who gets the slots while more is asked for than there are: accounts and keys whose
 * clients ask again as soon as they are answered, at several edges. What comes out is
 * compared with what the rule promises.
 */
import { seededRandom } from "../../tests/support/seeded_random.ts";
import {
  type BusCounts,
  noCounts,
  type SimulatedBus,
  SimulatedEdge,
  SimulatedWorker,
} from "./simulated.ts";
import { Timeline } from "./timeline.ts";

/** A key, and those who use it. */
export interface Party {
  readonly account: string;
  readonly key: string;
  /** How many clients it has at each edge. */
  readonly clients: readonly number[];
  /** What each of its requests asks for. Default: 100. */
  readonly tokens?: number;
  /** The weight of its account among the others. Default: 1. */
  readonly weight?: number;
  /** The weight of its key within the account. Default: 1. */
  readonly keyWeight?: number;
  /** When its clients begin to ask. Default: at the start. */
  readonly beginsAtMs?: number;
}

/** What is simulated. */
export interface Contest {
  readonly parties: readonly Party[];
  readonly workers: number;
  /** How many requests each worker runs at once. */
  readonly slots: number;
  /** How long an answer takes on average. */
  readonly answerMs: number;
  readonly lengthMs: number;
}

/** What a key got. */
export interface Portion {
  readonly party: Party;
  /** The share of the party in all tokens, as the rule promises it, and as it was. */
  readonly expected: number;
  readonly got: number;
  readonly requests: number;
  /** From the request until a worker took it. */
  readonly longestWaitMs: number;
  /** Requests that workers took while its first one waited, that one included. */
  readonly firstTurn: number;
}

/** What came of it. */
export interface ContestResult {
  readonly portions: readonly Portion[];
  readonly counts: BusCounts;
  /** Requests that were answered, and jobs that workers sent back. */
  readonly answered: number;
  readonly sentBack: number;
  /** How much of all slots was in use. */
  readonly used: number;
}

const SEED = 38;
const TOKENS = 100;
/** The clients begin within this time. */
const FILL_MS = 1_000;
/** A client that was answered takes this long to ask again. */
const PAUSE_MS = 5;
/** What happens before is not counted. */
const SETTLED_MS = 10_000;
const QUEUE = {
  waitMs: 3_600_000,
  requestsMax: 100_000,
  tokensMax: Infinity,
};

/** Runs a contest; the same one always comes to the same. */
export function contest(terms: Contest): Promise<ContestResult> {
  return new Contestants(terms).run();
}

interface WaitingRequest {
  readonly party: Party;
  readonly atMs: number;
  /** How many requests workers had taken before. */
  readonly taken: number;
}

interface Count {
  tokens: number;
  requests: number;
  longestWaitMs: number;
  readonly firstTurn: number;
}

class Contestants implements SimulatedBus {
  readonly terms: Contest;
  readonly timeline = new Timeline();
  readonly random = seededRandom(SEED);
  readonly counts = noCounts();
  readonly queue = QUEUE;
  readonly edges: readonly SimulatedEdge[];
  readonly workers = new Map<string, SimulatedWorker>();
  readonly #waiting = new Map<string, WaitingRequest>();
  readonly #got = new Map<Party, Count>();
  #requests = 0;
  #taken = 0;
  #answered = 0;
  #sentBack = 0;
  #running = 0;
  /** Slots in use, added up over time, and since when they were as many as now. */
  #usedMs = 0;
  #sinceMs = 0;

  constructor(terms: Contest) {
    this.terms = terms;
    const { workers, slots, parties } = terms;
    for (let n = 0; n < workers; n += 1) {
      const worker = new SimulatedWorker(`w${n}`, slots, this);
      this.workers.set(worker.id, worker);
    }
    const edges = Math.max(...parties.map(({ clients }) => clients.length));
    this.edges = Array.from(
      { length: edges },
      (_, n) => new SimulatedEdge(`e${n}`, this),
    );
  }

  get answerMs(): number {
    return this.terms.answerMs;
  }

  isAtLimit(): boolean {
    return false;
  }

  async run(): Promise<ContestResult> {
    const { parties, lengthMs, workers, slots } = this.terms;
    for (const edge of this.edges) edge.start();
    for (const worker of this.workers.values()) worker.start();
    for (const party of parties) {
      for (const [at, edge] of this.edges.entries()) {
        for (let n = 0; n < (party.clients[at] ?? 0); n += 1) {
          const { beginsAtMs = 0 } = party;
          const waitMs = beginsAtMs + FILL_MS * this.random();
          this.timeline.after(waitMs, () => this.#ask(party, edge));
        }
      }
    }
    await this.timeline.runTo(lengthMs);
    this.#use(0);
    const all = this.#got.values().reduce((sum, { tokens }) => sum + tokens, 0);
    const expected = expectedShares(parties);
    return {
      portions: parties.map((party) => {
        const { tokens = 0, requests = 0, longestWaitMs = 0, firstTurn = 0 } =
          this.#got.get(party) ?? {};
        return {
          party,
          expected: expected.get(party) ?? 0,
          got: tokens / all,
          requests,
          longestWaitMs,
          firstTurn,
        };
      }),
      counts: this.counts,
      answered: this.#answered,
      sentBack: this.#sentBack,
      used: this.#usedMs / (lengthMs - SETTLED_MS) / workers / slots,
    };
  }

  onTaken(requestId: string): void {
    this.#use(1);
    this.#taken += 1;
    const request = this.#waiting.get(requestId);
    const { nowMs } = this.timeline;
    if (request === undefined || nowMs < SETTLED_MS) return;
    const { party, atMs, taken } = request;
    const count = this.#got.get(party) ?? {
      tokens: 0,
      requests: 0,
      longestWaitMs: 0,
      firstTurn: this.#taken - taken,
    };
    count.tokens += party.tokens ?? TOKENS;
    count.requests += 1;
    count.longestWaitMs = Math.max(count.longestWaitMs, nowMs - atMs);
    this.#got.set(party, count);
  }

  onSentBack(): void {
    if (this.timeline.nowMs >= SETTLED_MS) this.#sentBack += 1;
  }

  onAnswered(): void {
    this.#use(-1);
    if (this.timeline.nowMs >= SETTLED_MS) this.#answered += 1;
  }

  #use(more: number): void {
    const { nowMs } = this.timeline;
    const sinceMs = Math.max(this.#sinceMs, SETTLED_MS);
    this.#usedMs += this.#running * Math.max(0, nowMs - sinceMs);
    this.#sinceMs = nowMs;
    this.#running += more;
  }

  #ask(party: Party, edge: SimulatedEdge): void {
    this.#requests += 1;
    const requestId = this.#requests.toString(16).padStart(32, "0");
    const { nowMs: atMs } = this.timeline;
    this.#waiting.set(requestId, { party, atMs, taken: this.#taken });
    const { account, key: keyId, tokens = TOKENS } = party;
    const { weight = 1, keyWeight = 1 } = party;
    const queue = { weight, keyWeight, isBatch: false };
    edge.ask({ requestId, keyId, account, tokens, queue }, () => {
      this.#waiting.delete(requestId);
      this.timeline.after(PAUSE_MS, () => this.#ask(party, edge));
    });
  }
}

/**
 * What the rule promises: an edge gets as much as the accounts that wait there weigh,
 * an account of it as much as it weighs, a key of it as much as that weighs.
 */
function expectedShares(parties: readonly Party[]): Map<Party, number> {
  const shares = new Map<Party, number>();
  const edges = Math.max(...parties.map(({ clients }) => clients.length));
  let all = 0;
  for (let edge = 0; edge < edges; edge += 1) {
    const here = parties.filter(({ clients }) => (clients[edge] ?? 0) > 0);
    const weights = new Map(
      here.map(({ account, weight = 1 }) => [account, weight] as const),
    );
    all += weights.values().reduce((sum, weight) => sum + weight, 0);
    for (const party of here) {
      const { account, weight = 1, keyWeight = 1 } = party;
      const keys = here.filter((each) => each.account === account)
        .reduce((sum, each) => sum + (each.keyWeight ?? 1), 0);
      const share = weight * keyWeight / keys;
      shares.set(party, (shares.get(party) ?? 0) + share);
    }
  }
  for (const [party, share] of shares) shares.set(party, share / all);
  return shares;
}
