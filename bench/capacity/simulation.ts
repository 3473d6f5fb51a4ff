/** How well edges spread requests over workers: many clients that ask at random. */
import { DISPATCH_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import { cpuSeconds } from "../processes.ts";
import {
  exponential,
  noCounts,
  type SimulatedBus,
  SimulatedEdge,
  SimulatedWorker,
} from "./simulated.ts";
import { Timeline } from "./timeline.ts";

/** What is simulated. */
export interface Scenario {
  readonly edges: number;
  readonly workers: number;
  /** Requests that clients want to have running, on average. */
  readonly streams: number;
  /** The same as a share of all slots. */
  readonly load: number;
  /** How long an answer takes on average. */
  readonly answerMs: number;
  /** The model server runs this many at once, as a share of all slots. */
  readonly serverLimit?: number;
}

/** What came of it. */
export interface Result {
  /** Requests that a worker took, or that were refused. */
  readonly requests: number;
  /** Requests for which no worker had a slot in time. */
  readonly refused: number;
  /** From the request until a worker took it, sorted. */
  readonly takenMs: readonly number[];
  /** Jobs that a worker sent back. */
  readonly sentBack: number;
  /** Share of its slots that the busiest worker used, less that of all, at most. */
  readonly imbalance: number;
  /** CPU time of one edge, and of what is simulated around it, as a share of a core. */
  readonly edgeShare: number;
}

const SEED = 37;
const KEYS = 100;
/** The requests that run at the start come within this time. */
const FILL_MS = 1_000;
/** What happens before is not counted. */
const SETTLED_MS = 3_000;
/** The time in which the last requests that count find a worker, or do not. */
const DECIDED_MS = DISPATCH_LIMITS.queueWaitMs + STREAM_LIMITS.tickMs;
/** Enough requests for a share of a thousandth, in bounded time. */
const REQUESTS_MIN = 2_000;
const WINDOW_MS = { min: 5_000, max: 600_000 };
/** Runs a scenario; the same one always comes to the same. */
export function simulate(scenario: Scenario): Promise<Result> {
  return new Simulation(scenario).run();
}

class Simulation implements SimulatedBus {
  readonly scenario: Scenario;
  readonly timeline = new Timeline();
  readonly random = seededRandom(SEED);
  readonly edges: readonly SimulatedEdge[];
  readonly workers = new Map<string, SimulatedWorker>();
  readonly counts = noCounts();
  /** Requests that the model servers run. */
  #running = 0;
  /** Requests that come until then count. */
  readonly #windowEndMs: number;
  #requests = 0;
  /** When the requests came that no worker has taken yet. */
  readonly #askedAtMs = new Map<string, number>();
  #refused = 0;
  #sentBack = 0;
  #imbalance = 0;
  readonly #takenMs: number[] = [];

  constructor(scenario: Scenario) {
    this.scenario = scenario;
    const { edges, workers, streams, load, answerMs } = scenario;
    const slots = Math.max(1, Math.round(streams / load / workers));
    for (let n = 0; n < workers; n += 1) {
      const worker = new SimulatedWorker(`w${n}`, slots, this);
      this.workers.set(worker.id, worker);
    }
    this.edges = Array.from(
      { length: edges },
      (_, n) => new SimulatedEdge(`e${n}`, this),
    );
    const wantedMs = REQUESTS_MIN / (streams / answerMs);
    const { min, max } = WINDOW_MS;
    this.#windowEndMs = SETTLED_MS + Math.min(max, Math.max(min, wantedMs));
  }

  get answerMs(): number {
    return this.scenario.answerMs;
  }

  isAtLimit(): boolean {
    const { streams, load, serverLimit = Infinity } = this.scenario;
    return this.#running >= streams / load * serverLimit;
  }

  async run(): Promise<Result> {
    const { edges, streams, answerMs } = this.scenario;
    const { timeline, random } = this;
    for (const edge of this.edges) edge.start();
    for (const worker of this.workers.values()) worker.start();
    for (let n = 0; n < streams; n += 1) {
      timeline.after(FILL_MS * random(), () => this.#ask());
    }
    const gapMs = answerMs / streams;
    const arrive = () => {
      this.#ask();
      timeline.after(exponential(gapMs, random), arrive);
    };
    timeline.after(DISPATCH_LIMITS.workerBeatMs, arrive);
    timeline.after(SETTLED_MS, () => {
      timeline.every(DISPATCH_LIMITS.workerBeatMs, 0, () => this.#look());
    });
    const before = cpuSeconds([Deno.pid]);
    const endMs = this.#windowEndMs + DECIDED_MS;
    await timeline.runTo(endMs);
    const cpuMs = 1_000 * (cpuSeconds([Deno.pid]) - before);
    return {
      requests: this.#takenMs.length + this.#refused,
      refused: this.#refused,
      takenMs: this.#takenMs.sort((a, b) => a - b),
      sentBack: this.#sentBack,
      imbalance: this.#imbalance,
      edgeShare: cpuMs / endMs / edges,
    };
  }

  onTaken(requestId: string): void {
    this.#running += 1;
    const askedAtMs = this.#askedAtMs.get(requestId);
    if (askedAtMs === undefined) return;
    this.#askedAtMs.delete(requestId);
    this.#takenMs.push(this.timeline.nowMs - askedAtMs);
  }

  onSentBack(requestId: string): void {
    if (this.#askedAtMs.has(requestId)) this.#sentBack += 1;
  }

  onAnswered(): void {
    this.#running -= 1;
  }

  #ask(): void {
    const edge = this.edges[Math.floor(this.random() * this.edges.length)];
    const { nowMs } = this.timeline;
    this.#requests += 1;
    const requestId = this.#requests.toString(16).padStart(32, "0");
    const isCounted = nowMs >= SETTLED_MS && nowMs < this.#windowEndMs;
    if (isCounted) this.#askedAtMs.set(requestId, nowMs);
    const keyId = `key_${this.#requests % KEYS}`;
    edge?.ask({ requestId, keyId }, ({ kind }) => {
      const wasWaiting = this.#askedAtMs.delete(requestId);
      if (wasWaiting && kind === "failed") this.#refused += 1;
    });
  }

  #look(): void {
    const shares = this.workers.values().map((worker) =>
      worker.inFlight / worker.slots
    ).toArray();
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
    const most = shares.reduce((a, b) => Math.max(a, b), 0);
    this.#imbalance = Math.max(this.#imbalance, most - mean);
  }
}
