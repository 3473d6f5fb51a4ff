/**
 * The registry of videos in Redis. A job belongs to an owner, so it outlives the key
 * that created it.
 */
import { DUE_JOBS_KEY, jobKey, jobsKey } from "@gateway/shared/keys/record";
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import { integer } from "@gateway/shared/openai/fields";
import { videoSchema } from "@gateway/shared/openai/media";
import {
  defineScript,
  type RedisLink,
  type RedisScript,
} from "@gateway/shared/redis/link";
import { z } from "zod";
import { reservationSchema } from "../limits/settlement.ts";
import { CLAIM_DUE, Registry } from "../store/registry.ts";
import writeJobLua from "./write_job.lua" with { type: "text" };

/**
 * A job, without its prompt. Times that clients see are in Unix seconds, others in ms.
 */
const jobSchema = z.object({
  ...videoSchema.omit({ object: true, prompt: true }).shape,
  /** What its key and owner are charged when it ends. */
  reservation: reservationSchema,
  backend: z.string(),
  engineId: z.string(),
  createdAtMs: z.number(),
  /** When the model server last reported the state. */
  seenAtMs: z.number(),
  /** Since when the model server cannot be reached; null while it can. */
  lostAtMs: z.number().nullable(),
  expires_at: z.number(),
  /** The seconds that are charged at least: the model server may state a default. */
  secondsLeast: z.number().default(0),
  /** Further members that the model server states. */
  more: z.record(z.string(), z.unknown()).default({}),
});
/** A video that a model server makes or has made, as the registry keeps it. */
export type VideoJob = z.output<typeof jobSchema>;

/** Whether a video has been made or has failed: its state is final. */
export const isOver = ({ status }: Pick<VideoJob, "status">): boolean =>
  status === "completed" || status === "failed";

/** The id of the owner who is charged for a video and may see it. */
export const ownerOf = ({ reservation }: VideoJob): string =>
  reservation.principal.ownerId;

const MS_PER_SECOND = 1_000;
/** How many jobs one read of a list takes. */
const BATCH = 100;

const WRITE = defineScript("write_job", writeJobLua);

/** What an edge loads for the registry, beside `EDGE_SCRIPTS`. */
export const VIDEO_SCRIPTS: readonly RedisScript[] = [WRITE, CLAIM_DUE];

/** The query of `GET /v1/videos`: 20 videos, the newest first, by default. */
export const listQuery = z.object({
  limit: z.coerce.number().pipe(integer(0, VIDEO_LIMITS.listMax)).default(20),
  order: z.enum(["asc", "desc"]).default("desc"),
  after: z.string().exactOptional(),
});

/** What {@link listQuery} reads. */
export type ListQuery = z.output<typeof listQuery>;

/** A page of the videos of an owner, in the order that was asked for. */
export interface VideoPage {
  jobs: VideoJob[];
  /** Whether the list goes on. */
  hasMore: boolean;
}

/** What {@link VideoJobs} needs. */
export interface VideoJobsOptions {
  redis: Pick<RedisLink, "command" | "evalScript">;
  /** How long after its start, or after it was last due, a job is due. */
  sweepMs?: number;
}

/**
 * The registry in a Redis. Its methods reject with `service_unavailable` without it.
 */
export class VideoJobs {
  readonly #registry: Registry;
  readonly #sweepMs: number;

  constructor({ redis, sweepMs = VIDEO_LIMITS.sweepMs }: VideoJobsOptions) {
    this.#registry = new Registry(redis);
    this.#sweepMs = sweepMs;
  }

  /** A job of an owner; null if there is none with this id, or no longer. */
  async find(ownerId: string, id: string): Promise<VideoJob | null> {
    const text = await this.#registry.command(
      "HGET",
      jobKey(ownerId, id),
      "job",
    );
    return text === null ? null : jobSchema.parse(JSON.parse(String(text)));
  }

  /** Registers a job that a model server has started. */
  async begin(job: VideoJob): Promise<void> {
    const { id, createdAtMs } = job;
    const ownerId = ownerOf(job);
    // The due time is written first, so that every registered job is checked.
    const dueMs = String(createdAtMs + this.#sweepMs);
    await this.#registry.command(
      "ZADD",
      DUE_JOBS_KEY,
      dueMs,
      `${ownerId}:${id}`,
    );
    await this.#registry.run(WRITE, [jobKey(ownerId, id), jobsKey(ownerId)], [
      ...scriptArgs(job),
      id,
      String(createdAtMs),
      String(VIDEO_LIMITS.keptMsMax),
    ]);
  }

  /**
   * Writes the state of a job. False if it had ended or was deleted: then nothing is
   * written.
   */
  async update(job: VideoJob): Promise<boolean> {
    const keys = [jobKey(ownerOf(job), job.id)];
    return await this.#registry.run(WRITE, keys, scriptArgs(job)) === 1;
  }

  /** Forgets a job, as if it had never been. */
  async remove(job: VideoJob): Promise<void> {
    await this.#registry.command("DEL", jobKey(ownerOf(job), job.id));
    await this.#registry.command("ZREM", jobsKey(ownerOf(job)), job.id);
  }

  /** The jobs of an owner for which `isShown`; null if `after` is not one of them. */
  async list(
    ownerId: string,
    { limit, order, after }: ListQuery,
    isShown: (job: VideoJob) => boolean,
  ): Promise<VideoPage | null> {
    const prefix = order === "asc" ? "Z" : "ZREV";
    const key = jobsKey(ownerId);
    const last = after === undefined
      ? -1
      : await this.#registry.command(`${prefix}RANK`, key, after);
    if (last === null) return null;
    const jobs: VideoJob[] = [];
    for (let at = Number(last) + 1;; at += BATCH) {
      const range = [`${at}`, `${at + BATCH - 1}`];
      const ids = await this.#registry.command(`${prefix}RANGE`, key, ...range);
      if (!Array.isArray(ids) || ids.length === 0) break;
      const found = await Promise.all(
        ids.map((id) => this.find(ownerId, String(id))),
      );
      // Jobs that have expired are still in the index.
      jobs.push(...found.filter((job) => job !== null).filter(isShown));
      if (jobs.length > limit) break;
    }
    return { jobs: jobs.slice(0, limit), hasMore: jobs.length > limit };
  }

  /** Takes jobs that are due, as `<owner>:<id>`. */
  async claim(): Promise<string[]> {
    return await this.#registry.claimDue(DUE_JOBS_KEY, {
      countMax: VIDEO_LIMITS.sweptMax,
      againMs: this.#sweepMs,
    });
  }

  /** Takes a job, named as by {@link claim}, off the list of those to check. */
  async release(due: string): Promise<void> {
    await this.#registry.command("ZREM", DUE_JOBS_KEY, due);
  }
}

/** The arguments of the script that writes a job. */
function scriptArgs(job: VideoJob): string[] {
  return [
    job.status,
    // Only the fields of the schema: an admission has more than its reservation.
    JSON.stringify(jobSchema.parse(job)),
    String(job.expires_at * MS_PER_SECOND),
  ];
}
