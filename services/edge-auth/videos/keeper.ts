/**
 * Follows jobs from their registration to their end, with or without a client that
 * asks.
 */
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import type { Catalog } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import type { EngineVideo, VideoRequest } from "@gateway/shared/openai/media";
import type { WallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { WholeBody } from "../dispatch/request_body.ts";
import type { ChargeSubject } from "../limits/admission.ts";
import type { Cost } from "../limits/cost.ts";
import type { Limiter } from "../limits/limiter.ts";
import { chargeFields } from "../limits/rate.ts";
import type { Reservation } from "../limits/settlement.ts";
import { unreadable } from "../media/relay.ts";
import { WholeAnswer } from "../requests/answer.ts";
import type { RunStarter } from "../requests/run_record.ts";
import { engineVideoIn } from "./engine_report.ts";
import {
  isOver,
  type ListQuery,
  ownerOf,
  type VideoJob,
  type VideoJobs,
  type VideoPage,
} from "./jobs.ts";

/** What {@link VideoKeeper} needs. */
export interface VideoKeeperOptions {
  jobs: Pick<VideoJobs, keyof VideoJobs>;
  limiter: Pick<Limiter, "endVideo" | "releaseVideo">;
  dispatcher: Pick<RunStarter, "start">;
  catalog: Catalog;
  wallNow: WallNow;
  log: Log;
  /** Is called once for each video that was made, with its cost. */
  onMade: (subject: ChargeSubject, cost: Cost) => void;
  /** Default {@link VIDEO_LIMITS}. */
  limits?: Partial<
    Record<"engineLostMs" | "freshMs" | "lookMs" | "askedMax", number>
  >;
}

const MS_PER_SECOND = 1_000;
/** How often an edge looks for jobs that are due. */
const LOOK_MS = 5_000;
/**
 * OpenAI's default, for requests and model servers that state no length: an unknown
 * length is not free.
 */
const SECONDS_DEFAULT = 4;
/** The model server is at fault, not the gateway. */
const ENGINE_FAULT =
  /^(upstream_(error|unreachable|invalid|truncated|timeout)|service_unavailable)$/;

/** The state of a job that its model server has only just accepted. */
const NOT_BEGUN = {
  status: "queued",
  progress: 0,
  completed_at: null,
  error: null,
} as const;

/** The length of a video in whole seconds. */
export const secondsOf = (seconds: string | null | undefined): number =>
  Math.ceil(Number(seconds)) || SECONDS_DEFAULT;

/** The seconds that a video costs. */
const chargedSeconds = ({ seconds, secondsLeast }: VideoJob): number =>
  Math.max(secondsOf(seconds), Math.ceil(secondsLeast));

const isMissing = (error: unknown): boolean =>
  error instanceof ApiError && error.code === "not_found";

/** A job whose model server is being asked. */
interface Asking {
  readonly ownerId: string;
  readonly answer: Promise<VideoJob | null>;
}

/** What is known of a job besides the first report of its model server. */
export type NewVideo = Pick<
  VideoJob,
  | "reservation"
  | "model"
  | "seconds"
  | "secondsLeast"
  | "size"
  | "remixed_from_video_id"
>;

/**
 * Follows the videos of all owners. Errors of its methods are `ApiError`s,
 * `service_unavailable` without Redis.
 */
export class VideoKeeper {
  readonly #options: VideoKeeperOptions;
  readonly #limits;
  /** Jobs whose model server is being asked, by their ids. */
  readonly #asking = new Map<string, Asking>();
  #sweeping: Promise<void> | null = null;

  constructor(options: VideoKeeperOptions) {
    this.#options = options;
    this.#limits = { ...VIDEO_LIMITS, lookMs: LOOK_MS, ...options.limits };
  }

  /**
   * Registers the job that a model server has started, or deletes it there: none runs
   * unregistered.
   */
  async begin(video: EngineVideo, about: NewVideo): Promise<VideoJob> {
    const { jobs, limiter, log, wallNow } = this.#options;
    const { model } = about;
    const job = newJob(video, about, wallNow());
    try {
      await jobs.begin(job);
      return job;
    } catch (error) {
      log.error("video_not_registered", { model, error });
      void limiter.releaseVideo(job.reservation);
      this.#ask(job, "delete").catch((error: unknown) =>
        log.warn("video_not_deleted", { model, error })
      );
      throw error;
    }
  }

  /** Frees the reservation of a video that was not started. */
  release(reservation: Reservation): Promise<void> {
    return this.#options.limiter.releaseVideo(reservation);
  }

  /** See {@link VideoJobs.find}. */
  find(ownerId: string, id: string): Promise<VideoJob | null> {
    return this.#options.jobs.find(ownerId, id);
  }

  /** See {@link VideoJobs.list}. */
  list(
    ownerId: string,
    query: ListQuery,
    isShown: (job: VideoJob) => boolean,
  ): Promise<VideoPage | null> {
    return this.#options.jobs.list(ownerId, query, isShown);
  }

  /**
   * Asks the model server for the state of a job, unless it is known, or too many jobs
   * of its owner are being asked about. Null if the job was deleted in the meantime.
   */
  async refresh(job: VideoJob): Promise<VideoJob | null> {
    const { id, seenAtMs } = job;
    // A job that was seen in the future was seen by a clock that was ahead.
    const ageMs = Math.abs(this.#options.wallNow() - seenAtMs);
    if (isOver(job) || ageMs < this.#limits.freshMs) return job;
    const question = this.#asking.get(id);
    if (question !== undefined) return await question.answer;
    const ownerId = ownerOf(job);
    const sameOwner = this.#asking.values().filter((each) =>
      each.ownerId === ownerId
    );
    if ([...sameOwner].length >= this.#limits.askedMax) return job;
    const answer = this.#update(job).finally(() => this.#asking.delete(id));
    this.#asking.set(id, { ownerId, answer });
    return await answer;
  }

  /**
   * Deletes a job at its model server, if that can, and here. One that has not ended
   * is charged unless its model server has deleted it: it may still be made.
   */
  async remove(job: VideoJob): Promise<void> {
    const { jobs, limiter } = this.#options;
    let seconds = chargedSeconds(job);
    try {
      if (this.#hasBackend(job)) {
        await this.#ask(job, "delete");
        seconds = 0;
      }
    } catch (error) {
      // It cannot delete jobs, or does not have this one.
      if (!isMissing(error)) throw error;
    }
    if (!isOver(job)) await limiter.endVideo(job.reservation, seconds);
    await jobs.remove(job);
  }

  /** Checks jobs that are due, until the returned function is called. */
  start(): () => void {
    const timer = setInterval(() => {
      this.#sweeping ??= this.#sweepOnce();
    }, this.#limits.lookMs);
    return () => clearInterval(timer);
  }

  async #sweepOnce(): Promise<void> {
    try {
      await this.#sweep();
    } catch (error) {
      this.#options.log.warn("videos_not_checked", { error });
    } finally {
      this.#sweeping = null;
    }
  }

  async #sweep(): Promise<void> {
    const { jobs } = this.#options;
    const due = await jobs.claim();
    await Promise.all(due.map(async (each) => {
      const [ownerId = "", id = ""] = each.split(":");
      const job = await jobs.find(ownerId, id);
      const next = job && await this.refresh(job);
      if (next === null || isOver(next)) await jobs.release(each);
    }));
  }

  async #update(job: VideoJob): Promise<VideoJob | null> {
    const { jobs, wallNow } = this.#options;
    const nowMs = wallNow();
    const next = await this.#look(job);
    if (next === job) return job;
    // Settle first: if this edge is lost before the update, another one checks the
    // job again.
    if (isOver(next)) await this.#settle(next, nowMs - job.createdAtMs);
    // Another edge may have been faster; its state wins.
    return await jobs.update(next)
      ? next
      : await jobs.find(ownerOf(job), job.id);
  }

  /** Charges a job that is over, and counts it unless another edge has done so. */
  async #settle(job: VideoJob, durationMs: number): Promise<void> {
    const { limiter, log, onMade } = this.#options;
    const { id, model, status, error, reservation } = job;
    const isMade = status === "completed";
    const seconds = isMade ? chargedSeconds(job) : 0;
    const cost = await limiter.endVideo(reservation, seconds);
    if (cost === null) return;
    const rate = reservation.rate ?? null;
    log.info("video", {
      id,
      ...reservation.principal,
      model,
      status,
      seconds,
      errorCode: error?.code,
      durationMs,
      ...chargeFields({ cost, rate }),
    });
    const endpoint = "videos";
    if (isMade) onMade({ model, endpoint, unit: "videoSeconds", rate }, cost);
  }

  /**
   * The current state of a job, or the last known one while its model server cannot be
   * asked.
   */
  async #look(job: VideoJob): Promise<VideoJob> {
    const nowMs = this.#options.wallNow();
    if (nowMs - job.createdAtMs > this.#limits.jobMs) {
      return asFailed(
        job,
        "The model server did not finish this video in time.",
      );
    }
    // While edges are replaced, another one may have a newer list.
    if (!this.#hasBackend(job)) {
      const message = "The model server of this video was removed.";
      return this.#lost(job, nowMs, message);
    }
    try {
      const video = await this.#ask(job, "retrieve");
      if (video === null) throw unreadable();
      return {
        ...withReport(job, video, nowMs),
        seenAtMs: nowMs,
        lostAtMs: null,
      };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (isMissing(error)) {
        return asFailed(job, "The model server no longer has this video.");
      }
      if (!ENGINE_FAULT.test(error.code)) return job;
      const message = "The model server of this video cannot be reached.";
      return this.#lost(job, nowMs, message);
    }
  }

  /** A job whose model server cannot be asked fails after `engineLostMs`. */
  #lost(job: VideoJob, nowMs: number, message: string): VideoJob {
    const lostAtMs = Math.min(job.lostAtMs ?? nowMs, nowMs);
    return nowMs - lostAtMs < this.#limits.engineLostMs
      ? { ...job, seenAtMs: nowMs, lostAtMs }
      : asFailed(job, message);
  }

  /**
   * Asks the model server of a job. Null for a deleted video; rejects with an
   * `ApiError`.
   */
  async #ask(
    { model, backend, engineId: id }: VideoJob,
    action: "retrieve" | "delete",
  ): Promise<EngineVideo | null> {
    const { promise, resolve } = Promise.withResolvers<Uint8Array | ApiError>();
    const about = { kind: "video", model, backend, id } as const;
    const request: VideoRequest = { ...about, action, stream: false };
    const answer = new WholeAnswer(resolve);
    const job = {
      requestId: newRequestId(),
      keyId: "",
      kind: "video" as const,
      model,
      body: WholeBody.encode(request),
    };
    answer.attach(this.#options.dispatcher.start(job, answer, () => {}));
    return engineVideoIn(await promise);
  }

  #hasBackend({ model, backend }: VideoJob): boolean {
    const backends = this.#options.catalog.get(model)?.backends ?? [];
    return backends.some(({ name }) => name === backend);
  }
}

/** The job that a model server has accepted, as it is registered. */
function newJob(
  video: EngineVideo,
  about: NewVideo,
  nowMs: number,
): VideoJob {
  const newest: VideoJob = {
    ...about,
    ...NOT_BEGUN,
    id: `video_${newRequestId()}`,
    lostAtMs: null,
    created_at: Math.floor(nowMs / MS_PER_SECOND),
    expires_at: Math.floor((nowMs + VIDEO_LIMITS.keptMs) / MS_PER_SECOND),
    backend: video.backend,
    engineId: video.id,
    more: video.more,
    createdAtMs: nowMs,
    seenAtMs: nowMs,
  };
  const job = withReport(newest, video, nowMs);
  // A job that is already over ends at its next refresh, like any other, and until
  // then has not begun.
  return isOver(job) ? { ...job, ...NOT_BEGUN, seenAtMs: 0 } : job;
}

function asFailed(job: VideoJob, message: string): VideoJob {
  return {
    ...job,
    status: "failed",
    error: { code: "video_lost", message },
  };
}

/** The job, updated with what its model server says. */
function withReport(
  job: VideoJob,
  { status, progress, error, ...video }: EngineVideo,
  nowMs: number,
): VideoJob {
  const expires_at = video.expires_at ?? 0;
  const nowS = Math.floor(nowMs / MS_PER_SECOND);
  const keptS = Math.floor(VIDEO_LIMITS.keptMsMax / MS_PER_SECOND);
  // An unfinished job that expired would never end.
  const isKept = status === "completed" && expires_at > nowS;
  return {
    ...job,
    status,
    error,
    progress: Math.max(progress, job.progress),
    completed_at: status === "completed" ? video.completed_at ?? nowS : null,
    seconds: video.seconds ?? job.seconds,
    size: video.size ?? job.size,
    more: video.more,
    expires_at: isKept
      ? Math.min(expires_at, job.created_at + keptS)
      : job.expires_at,
  };
}
