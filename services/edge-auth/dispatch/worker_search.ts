/** How a run looks for a worker: whom it asks next, and when it has waited too long. */
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { QueueTerms } from "@gateway/shared/models/queue";
import type { ApiError } from "@gateway/shared/openai/error";
import { noWorker, overloaded, saturated } from "./run_errors.ts";
import type { WantedModel } from "./workers.ts";

/** What the search uses of the known workers; `WorkerTable` describes each. */
export interface SearchedWorkers {
  pick(wanted: WantedModel, tried: readonly string[]): string | null;
  hasWorkerFor(wanted: WantedModel): boolean;
  saturatedMs(wanted: WantedModel): number;
}

/** What a search uses of its edge. */
export interface SearchTools {
  readonly workers: SearchedWorkers;
  readonly clock: { now(): number };
}

/** What is looked for, and how long the search may take. */
export interface SearchTerms {
  readonly wanted: WantedModel;
  readonly terms: Pick<QueueTerms, "waitMs">;
}

/** Whom to offer a job to: a worker, or the queue group, of which any may accept it. */
export type OfferTarget = { readonly workerId: string | null };

const NONE: readonly string[] = [];

/** Looks for a worker that takes the job of one run, and knows which were tried. */
export class WorkerSearch {
  readonly #terms: SearchTerms;
  readonly #tools: SearchTools;
  /** Workers that were offered the job since it last waited. */
  #tried = NONE;
  #hasAskedGroup = false;
  #sinceMs: number;

  /** Begins a search for a worker of this model. */
  constructor(terms: SearchTerms, tools: SearchTools) {
    this.#terms = terms;
    this.#tools = tools;
    this.#sinceMs = tools.clock.now();
  }

  /** When the search began: the place of the run in the queue. */
  get sinceMs(): number {
    return this.#sinceMs;
  }

  /** Whether the run has waited as long as a request may. */
  get hasTakenTooLong(): boolean {
    return this.#leftMs <= 0;
  }

  /** Whether no worker can take it for longer than it may still wait. */
  get isHopeless(): boolean {
    return this.hasTakenTooLong || this.#saturatedMs > this.#leftMs;
  }

  /** Why no worker has taken it. */
  get failure(): ApiError {
    const waitMs = this.#saturatedMs;
    if (waitMs > 0) return saturated(waitMs);
    const isBusy = this.#tools.workers.hasWorkerFor(this.#terms.wanted);
    return isBusy ? overloaded() : noWorker();
  }

  get #leftMs(): number {
    const { waitMs } = this.#terms.terms;
    return this.#sinceMs + waitMs - this.#tools.clock.now();
  }

  get #saturatedMs(): number {
    return this.#tools.workers.saturatedMs(this.#terms.wanted);
  }

  /**
   * Whether enough workers have rejected the job to show that their beats are outdated:
   * newer ones are waited for.
   */
  get isExhausted(): boolean {
    return this.#tried.length >= DISPATCH_LIMITS.workersTriedMax;
  }

  /**
   * Whom to offer the job to next, or null if no worker has a free slot. If all known
   * workers are full, the run waits for one. If none is known, the queue group is
   * asked, but only once, since the same worker may reject the job every time.
   */
  next(): OfferTarget | null {
    const { workers } = this.#tools;
    const { wanted } = this.#terms;
    const workerId = workers.pick(wanted, this.#tried);
    if (workerId !== null) return { workerId };
    const mayAskGroup = !this.#hasAskedGroup &&
      !workers.hasWorkerFor(wanted);
    return mayAskGroup ? { workerId: null } : null;
  }

  /** The job was sent to the queue group. */
  onGroupAsked(): void {
    this.#hasAskedGroup = true;
  }

  /** This worker did not take the job: others come first. */
  skip(workerId: string): void {
    if (this.#tried.includes(workerId)) return;
    this.#tried = [...this.#tried, workerId];
  }

  /** The run waits: at its next turn any worker may get it. */
  forget(): void {
    this.#tried = NONE;
  }

  /** The job is repeated: it looks for a worker as if it had just come. */
  restart(): void {
    this.#sinceMs = this.#tools.clock.now();
    this.forget();
  }
}
