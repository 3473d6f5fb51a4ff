/** How a run looks for a worker: whom it asks next, and when it has waited too long. */
import { DISPATCH_LIMITS } from "@gateway/shared/limits";

/** What the search uses of the known workers; `WorkerTable` describes each. */
export interface SearchedWorkers {
  pick(model: string, tried: ReadonlySet<string>): string | null;
  hasWorkerFor(model: string): boolean;
}

/** What a search needs. */
export interface WorkerSearchOptions {
  readonly workers: SearchedWorkers;
  readonly now: () => number;
}

/** Whom to offer a job to: a worker, or the queue group, of which any may accept it. */
export type OfferTarget = { readonly workerId: string | null };

/** The search of one run for a worker. */
export class WorkerSearch {
  readonly #model: string;
  readonly #options: WorkerSearchOptions;
  /** Workers that were offered the job since it last waited. */
  readonly #tried = new Set<string>();
  #hasAskedGroup = false;
  #sinceMs: number;

  /** Begins a search for a worker of this model. */
  constructor(model: string, options: WorkerSearchOptions) {
    this.#model = model;
    this.#options = options;
    this.#sinceMs = options.now();
  }

  /** When the search began: the place of the run in the queue. */
  get sinceMs(): number {
    return this.#sinceMs;
  }

  /** Whether the run has waited as long as a request may. */
  get hasTakenTooLong(): boolean {
    return this.#options.now() - this.#sinceMs >= DISPATCH_LIMITS.queueWaitMs;
  }

  /**
   * Whether enough workers have rejected the job to show that their beats are outdated:
   * newer ones are waited for.
   */
  get isExhausted(): boolean {
    return this.#tried.size >= DISPATCH_LIMITS.workersTriedMax;
  }

  /**
   * Whom to offer the job to next, or null if no worker has a free slot. If all known
   * workers are full, the run waits for one. If none is known, the queue group is
   * asked, but only once, since the same worker may reject the job every time.
   */
  next(): OfferTarget | null {
    const { workers } = this.#options;
    const workerId = workers.pick(this.#model, this.#tried);
    if (workerId !== null) return { workerId };
    const mayAskGroup = !this.#hasAskedGroup &&
      !workers.hasWorkerFor(this.#model);
    return mayAskGroup ? { workerId: null } : null;
  }

  /** The job was sent to the queue group. */
  onGroupAsked(): void {
    this.#hasAskedGroup = true;
  }

  /** This worker was offered the job, in vain: others come first. */
  skip(workerId: string): void {
    this.#tried.add(workerId);
  }

  /** The run waits: at its next turn any worker may get it. */
  forget(): void {
    this.#tried.clear();
  }

  /** The job is repeated: it looks for a worker as if it had just come. */
  restart(): void {
    this.#sinceMs = this.#options.now();
    this.forget();
  }
}
