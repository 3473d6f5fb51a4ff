/** `/v1/videos`: jobs in memory, which advance with time. */
import type { WallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import * as z from "zod";
import {
  type Controls,
  readControls,
  withoutControls,
} from "../serving/controls.ts";
import { HttpError } from "../serving/errors.ts";
import {
  checked,
  parseJson,
  readMedia,
  type Received,
} from "../serving/fields.ts";
import { MODEL_IDS } from "../serving/models.ts";
import { type Planned, wholeAnswer } from "../serving/run.ts";
import { photoField, photoOf, promptField, sizeOf } from "./images.ts";
import type { Scene } from "./picture.ts";
import type { Studio } from "./studio.ts";

/** The oldest job is forgotten for a new one. */
const JOBS_MAX = 100;
const JOB_SECONDS = 2;
/** The part of a job's time in which it waits. */
const QUEUED = 0.25;
const FAILURE = {
  code: "video_generation_failed",
  message: "Failed on request.",
};
const PIECE_BYTES = 4 * 1024;

const creation = z.object({
  prompt: promptField,
  seconds: z.coerce.string().pipe(z.enum(["4", "8", "12"])).default("4"),
  size: z.string().regex(/[02468]x\d*[02468]$/, { error: "even numbers" })
    .default("720x1280").transform(sizeOf),
  input_reference: photoField.optional(),
});
const remixing = z.object({ prompt: promptField });
const reading = z.object({
  after: z.string().optional(),
  limit: z.coerce.number().pipe(z.int().min(1).max(100)).default(20),
  order: z.enum(["asc", "desc"]).default("desc"),
  variant: z.enum(["video", "thumbnail"]).default("video"),
});
type Reading = z.output<typeof reading>;

interface Order {
  readonly prompt: string;
  readonly seconds: string;
  readonly scene: Scene;
  readonly remixed_from_video_id: string | null;
}

interface Job extends Order {
  readonly id: string;
  readonly controls: Controls;
  readonly createdAtMs: number;
  film?: Promise<Uint8Array>;
}

export class Videos {
  readonly #jobs = new Map<string, Job>();

  constructor(readonly now: WallNow, readonly studio: Studio) {}

  /** Plans the answer to any request below `/v1/videos`. Rejects with an `HttpError` for a wrong one. */
  async plan(request: Request, received: Received): Promise<Planned> {
    const { pathname, searchParams } = new URL(request.url);
    const query = checked(reading, Object.fromEntries(searchParams));
    const [id = "", action = ""] = pathname.split("/").slice(3);
    const what = `${request.method} ${id && ":id"} ${action}`.trim();
    if (what === "POST") return await this.#create(received);
    if (what === "GET") return json(this.#list(query));
    const job = this.#jobs.get(id);
    if (job === undefined) {
      const message = `Video with id '${id.slice(0, 80)}' not found.`;
      throw new HttpError(message, { status: 404, code: "not_found" });
    }
    switch (what) {
      case "GET :id":
        return json(this.#wire(job));
      case "GET :id content":
        return await this.#content(job, query, request.headers);
      case "DELETE :id":
        this.#jobs.delete(id);
        return json({ id, object: "video.deleted", deleted: true });
      case "POST :id remix": {
        const { prompt } = checked(remixing, parseJson(received.text));
        const { seconds, scene } = job;
        return this.#order({
          ...{ prompt, seconds, scene, remixed_from_video_id: id },
        });
      }
      default:
        throw new HttpError("Not Found", { status: 404 });
    }
  }

  async #create(received: Received): Promise<Planned> {
    const request = readMedia("video", creation, received);
    const { size, input_reference: given, ...order } = request;
    const photo = given && { photo: await photoOf(given) };
    const scene = { words: "", ...size, ...photo };
    return this.#order({ ...order, scene, remixed_from_video_id: null });
  }

  #order(order: Order): Planned {
    const controls = readControls(order.prompt, "prompt");
    const words = withoutControls(order.prompt);
    // The fault is in the file.
    const { break: _, ...own } = controls;
    const answer: Planned["answer"] = (pacing) => {
      const job = {
        ...{ ...order, controls, createdAtMs: this.now() },
        id: `video_${newRequestId()}`,
        scene: { ...order.scene, words },
      };
      this.#jobs.set(job.id, job);
      const [oldest = ""] = this.#jobs.keys();
      if (this.#jobs.size > JOBS_MAX) this.#jobs.delete(oldest);
      return wholeAnswer(pacing, [job], () => JSON.stringify(this.#wire(job)));
    };
    return { controls: own, answer };
  }

  #list({ after, limit, order }: Reading): object {
    const jobs = [...this.#jobs.values()].map((job) => this.#wire(job));
    if (order === "desc") jobs.reverse();
    const start = jobs.findIndex(({ id }) => id === after) + 1;
    const data = jobs.slice(start, start + limit);
    return {
      ...{ object: "list", data, has_more: start + limit < jobs.length },
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
    };
  }

  /** The object for clients, with every member that OpenAI has. */
  #wire({ id, prompt, seconds, scene, controls, ...job }: Job) {
    const { videoSeconds = JOB_SECONDS, isVideoFailing = false } = controls;
    const age = (this.now() - job.createdAtMs) / 1_000;
    const isOver = age >= videoSeconds;
    const progress = isOver ? 1 : age / videoSeconds;
    const end = isVideoFailing ? "failed" : "completed";
    const created_at = Math.floor(job.createdAtMs / 1_000);
    return {
      ...{ id, object: "video", model: MODEL_IDS.video, prompt, seconds },
      status: isOver ? end : progress < QUEUED ? "queued" : "in_progress",
      progress: Math.floor(progress * 100),
      created_at,
      completed_at: isOver ? created_at + videoSeconds : null,
      expires_at: null,
      size: `${scene.width}x${scene.height}`,
      remixed_from_video_id: job.remixed_from_video_id,
      error: isOver && isVideoFailing ? FAILURE : null,
    };
  }

  async #content(job: Job, { variant }: Reading, headers: Headers) {
    const range = headers.get("range") ?? "";
    if (this.#wire(job).status !== "completed") {
      const message =
        "Video is not ready yet, use GET /v1/videos/{video_id} to check status.";
      throw new HttpError(message, { status: 404 });
    }
    const { scene, seconds, controls } = job;
    if (variant === "thumbnail") {
      const png = await this.studio.picture(scene);
      return { controls: {}, answer: partOf(png, range, "image/png") };
    }
    job.film ??= this.studio.film(scene, Number(seconds));
    return { controls, answer: partOf(await job.film, range, "video/mp4") };
  }
}

function json(value: object): Planned {
  const body = () => JSON.stringify(value);
  return { controls: {}, answer: (pacing) => wholeAnswer(pacing, [], body) };
}

/** The part of a file that a `Range` names. */
function partOf(
  file: Uint8Array,
  range: string,
  contentType: string,
): Planned["answer"] {
  const [named, from = "", to = ""] = /^bytes=(\d*)-(\d*)$/.exec(range) ?? [];
  const size = file.length;
  const first = from === "" && to !== ""
    ? Math.max(0, size - Number(to))
    : Number(from);
  const end = from === "" || to === "" ? size : Math.min(size, Number(to) + 1);
  if (first >= end) {
    throw new HttpError("Range Not Satisfiable", { status: 416 });
  }
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  for (let at = first; at < end; at += PIECE_BYTES) {
    pieces.push(
      new Uint8Array(file.slice(at, Math.min(end, at + PIECE_BYTES))),
    );
  }
  const headers = {
    "accept-ranges": "bytes",
    "content-length": String(end - first),
    ...named && { "content-range": `bytes ${first}-${end - 1}/${size}` },
  };
  return (pacing) => ({
    ...{ contentType, headers, status: named ? 206 : 200 },
    pieces: pacing.ending(pacing.run(pieces), () => ""),
  });
}
