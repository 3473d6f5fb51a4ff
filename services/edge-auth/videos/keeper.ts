/**
 * Follows jobs from their registration to their end, with or without a client that
 * asks.
 */
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import type { Catalog } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import { parsePayload } from "@gateway/shared/bus/frame";
import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import {
  type EngineVideo,
  engineVideoSchema,
  type VideoRequest,
} from "@gateway/shared/openai/media";
import type { WallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { WholeBody } from "../dispatch/request_body.ts";
import type { Reservation } from "../limits/cost.ts";
import type { Limiter } from "../limits/limiter.ts";
import { unreadable } from "../media/endpoints.ts";
import { WholeAnswer } from "../requests/answer.ts";
import type { RunStarter } from "../requests/run_record.ts";
import { isOver, ownerOf, type VideoJob, type VideoJobs } from "./jobs.ts";

/** What {@link createVideoKeeper} needs. */
export interface VideoKeeperOptions {
  jobs: VideoJobs;
  limiter: Pick<Limiter, "endVideo" | "releaseVideo">;
  dispatcher: Pick<RunStarter, "start">;
  catalog: Catalog;
  wallNow: WallNow;
  log: Log;
  onMade: (model: string, seconds: number) => void;
  /** Default {@link VIDEO_LIMITS}. */
  limits?: Partial<Record<"engineLostMs" | "freshMs" | "lookMs", number>>;
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

const isMissing = (error: unknown): boolean =>
  error instanceof ApiError && error.code === "not_found";

/** Follows videos: see {@link createVideoKeeper}. */
export type VideoKeeper = ReturnType<typeof createVideoKeeper>;

/**
 * A worker's report on a video; null if it has none, as for a deleted one. Throws the
 * error of a failed run.
 */
export function engineVideoIn(result: Uint8Array | ApiError) {
  if (result instanceof ApiError) throw result;
  const read = new MediaHeadReader().push(result);
  const isRead = read !== null && read !== "invalid";
  return isRead ? parsePayload(engineVideoSchema, read.rest) : null;
}

/** Errors of its functions are `ApiError`s, `service_unavailable` without Redis. */
export function createVideoKeeper(options: VideoKeeperOptions) {
  const { jobs, limiter, dispatcher, catalog, wallNow, log, onMade } = options;
  const limits = { ...VIDEO_LIMITS, lookMs: LOOK_MS, ...options.limits };
  let sweeping: Promise<void> | null = null;

  /**
   * Asks the model server of a job. Null for a deleted video; rejects with an
   * `ApiError`.
   */
  const ask = async (
    { model, backend, engineId: id }: VideoJob,
    action: "retrieve" | "delete",
  ): Promise<EngineVideo | null> => {
    const { promise, resolve } = Promise.withResolvers<Uint8Array | ApiError>();
    const about = { kind: "video", model, backend, id } as const;
    const request: VideoRequest = { ...about, action, stream: false };
    const answer = new WholeAnswer(resolve);
    const job = {
      requestId: newRequestId(),
      keyId: "",
      kind: "video" as const,
      model,
      body: WholeBody.of(request),
    };
    answer.attach(dispatcher.start(job, answer, () => {}));
    return engineVideoIn(await promise);
  };

  const hasBackend = ({ model, backend }: VideoJob): boolean =>
    (catalog.get(model)?.backends ?? []).some(({ name }) => name === backend);

  const failed = (job: VideoJob, message: string): VideoJob => ({
    ...job,
    status: "failed",
    error: { code: "video_lost", message },
  });

  /** A job whose model server cannot be asked for this long fails. */
  const lost = (job: VideoJob, nowMs: number, message: string): VideoJob => {
    const lostAtMs = Math.min(job.lostAtMs ?? nowMs, nowMs);
    return nowMs - lostAtMs < limits.engineLostMs
      ? { ...job, seenAtMs: nowMs, lostAtMs }
      : failed(job, message);
  };

  /**
   * The current state of a job, or the last known one while its model server cannot be
   * asked.
   */
  const look = async (job: VideoJob): Promise<VideoJob> => {
    const nowMs = wallNow();
    if (nowMs - job.createdAtMs > limits.jobMs) {
      return failed(job, "The model server did not finish this video in time.");
    }
    // While edges are replaced, another one may have a newer list.
    if (!hasBackend(job)) {
      return lost(job, nowMs, "The model server of this video was removed.");
    }
    try {
      const video = await ask(job, "retrieve");
      if (video === null) throw unreadable();
      return { ...stated(job, video, nowMs), seenAtMs: nowMs, lostAtMs: null };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (isMissing(error)) {
        return failed(job, "The model server no longer has this video.");
      }
      if (!ENGINE_FAULT.test(error.code)) return job;
      const message = "The model server of this video cannot be reached.";
      return lost(job, nowMs, message);
    }
  };

  const update = async (job: VideoJob): Promise<VideoJob | null> => {
    const nowMs = wallNow();
    const next = await look(job);
    if (next === job) return job;
    if (isOver(next)) {
      // Settle first: if this edge is lost before the update, another one checks the
      // job again.
      const isMade = next.status === "completed";
      const seconds = isMade ? secondsOf(next.seconds) : 0;
      if (await limiter.endVideo(next.reservation, seconds)) {
        const { id, model, status, error, reservation } = next;
        log.info("video", {
          id,
          ...reservation.principal,
          model,
          status,
          seconds,
          errorCode: error?.code,
          durationMs: nowMs - job.createdAtMs,
        });
        if (isMade) onMade(model, seconds);
      }
    }
    // Another edge may have been faster; its state wins.
    return await jobs.update(next)
      ? next
      : await jobs.find(ownerOf(job), job.id);
  };

  const asking = new Map<string, Promise<VideoJob | null>>();

  /**
   * Asks the model server for the state of a job, unless it is known. Null if the job
   * was deleted in the meantime.
   */
  const refresh = async (job: VideoJob): Promise<VideoJob | null> => {
    const { id, seenAtMs } = job;
    // Before: by a clock that was ahead.
    const isFresh = Math.abs(wallNow() - seenAtMs) < limits.freshMs;
    if (isOver(job) || isFresh) return job;
    const asked = asking.get(id) ??
      update(job).finally(() => asking.delete(id));
    asking.set(id, asked);
    return await asked;
  };

  const sweep = async (): Promise<void> => {
    const due = await jobs.claim();
    await Promise.all(due.map(async (each) => {
      const [ownerId = "", id = ""] = each.split(":");
      const job = await jobs.find(ownerId, id);
      const next = job && await refresh(job);
      if (next === null || isOver(next)) await jobs.release(each);
    }));
  };

  const sweepOnce = async (): Promise<void> => {
    try {
      await sweep();
    } catch (error) {
      log.warn("videos_not_checked", { error });
    } finally {
      sweeping = null;
    }
  };

  return {
    /**
     * Registers the job that a model server has started, or deletes it there: none runs
     * unregistered.
     */
    async begin(
      video: EngineVideo,
      about: Pick<
        VideoJob,
        | "reservation"
        | "model"
        | "seconds"
        | "size"
        | "remixed_from_video_id"
      >,
    ): Promise<VideoJob> {
      const nowMs = wallNow();
      const { model } = about;
      const job = stated(
        {
          ...about,
          ...NOT_BEGUN,
          id: `video_${newRequestId()}`,
          lostAtMs: null,
          created_at: Math.floor(nowMs / MS_PER_SECOND),
          expires_at: Math.floor((nowMs + VIDEO_LIMITS.keptMs) / MS_PER_SECOND),
          backend: video.backend,
          engineId: video.id,
          createdAtMs: nowMs,
          seenAtMs: nowMs,
        },
        video,
        nowMs,
      );
      // A job that is already over ends at its next refresh, like any other, and until
      // then has not begun.
      if (isOver(job)) Object.assign(job, NOT_BEGUN, { seenAtMs: 0 });
      try {
        await jobs.begin(job);
        return job;
      } catch (error) {
        log.error("video_not_registered", { model, error });
        void limiter.releaseVideo(job.reservation);
        ask(job, "delete").catch((error: unknown) =>
          log.warn("video_not_deleted", { model, error })
        );
        throw error;
      }
    },
    /** Frees the reservation of a video that was not started. */
    release: (reservation: Reservation) => limiter.releaseVideo(reservation),
    refresh,
    find: jobs.find,
    list: jobs.list,
    /**
     * Deletes a job at its model server, if that can, and here. One that has not ended
     * is charged unless its model server has deleted it: it may still be made.
     */
    async remove(job: VideoJob): Promise<void> {
      let seconds = secondsOf(job.seconds);
      try {
        if (hasBackend(job)) {
          await ask(job, "delete");
          seconds = 0;
        }
      } catch (error) {
        // It cannot delete jobs, or does not have this one.
        if (!isMissing(error)) throw error;
      }
      if (!isOver(job)) await limiter.endVideo(job.reservation, seconds);
      await jobs.remove(job);
    },
    /** Checks jobs that are due, until the returned function is called. */
    start(): () => void {
      const timer = setInterval(() => {
        sweeping ??= sweepOnce();
      }, limits.lookMs);
      return () => clearInterval(timer);
    },
  };
}

/** The job, updated with what its model server says. */
function stated(
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
    expires_at: isKept
      ? Math.min(expires_at, job.created_at + keptS)
      : job.expires_at,
  };
}
