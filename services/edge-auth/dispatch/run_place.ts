/** The place of a run among those that wait for a slot. */
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import { familyOf } from "@gateway/shared/models/kinds";
import { type QueueTerms, uploadsLane } from "@gateway/shared/models/queue";
import type { RunJob } from "./outcome.ts";
import { type Share, WEIGHT_DEFAULT } from "./queue/share.ts";
import type { QueueFull, Waiting } from "./queue/wait_queue.ts";
import { WholeBody } from "./request_body.ts";
import type { WantedModel } from "./workers.ts";

/** What a place asks of its run; `Waiting` describes each. */
export interface PlacedRun {
  /** When it last started looking for a worker. */
  readonly sinceMs: number;
  offer(): boolean;
  giveUp(full: QueueFull): void;
}

/** Where a run waits, and on which terms. */
export class Place implements Waiting {
  readonly wanted: WantedModel;
  /** The model whose limits matter; null: of an upload, only the kind is known. */
  readonly model: string | null;
  readonly share: Share;
  readonly terms: QueueTerms;
  /** The tokens that it asks for, once it has waited: workers count its turn by them. */
  queuedTokens: number | undefined = undefined;
  readonly #run: PlacedRun;

  constructor(
    job: RunJob,
    run: PlacedRun,
    queueOf: (model: string | null) => QueueTerms,
  ) {
    this.#run = run;
    const isUpload = !(job.body instanceof WholeBody);
    this.wanted = {
      model: job.model,
      family: familyOf(job.kind),
      isGuess: isUpload,
    };
    this.model = isUpload ? null : job.model;
    this.share = shareOf(job);
    this.terms = queueOf(this.model);
  }

  /** Whether it has waited: then it goes on when its workers are gone, and restart. */
  get hasWaited(): boolean {
    return this.queuedTokens !== undefined;
  }

  /** The workers that may run it. */
  get family(): WorkerFamily {
    return this.wanted.family;
  }

  /** What it waits for: slots for a model that may be at limits, or for uploads. */
  get lane(): string {
    return this.model ?? uploadsLane(this.family);
  }

  get sinceMs(): number {
    return this.#run.sinceMs;
  }

  offer(): boolean {
    this.queuedTokens = this.share.tokens;
    return this.#run.offer();
  }

  giveUp(full: QueueFull): void {
    this.#run.giveUp(full);
  }
}

/** What decides its turn; a request of the edge itself has an account of its own. */
function shareOf(
  { account = "", keyId, tokens = 1, isBatch = false, queue }: RunJob,
): Share {
  return {
    account,
    keyId,
    weight: queue?.weight ?? WEIGHT_DEFAULT,
    keyWeight: queue?.keyWeight ?? WEIGHT_DEFAULT,
    tokens: Math.max(1, tokens),
    isBatch: isBatch || (queue?.isBatch ?? false),
  };
}
