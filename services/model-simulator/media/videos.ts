/**
 * `/v1/videos`: jobs in memory, which advance with time. It has no list: the gateway
 * keeps its own.
 */
import { ApiError } from "@gateway/shared/openai/error";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";
import {
  VIDEO_VARIANTS,
  videoBody,
  videoRemixSchema,
} from "@gateway/shared/openai/media";
import { remember } from "@gateway/shared/process/maps";
import type { WallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { z } from "zod";
import { type Planned, wholeAnswer } from "../serving/answer.ts";
import {
  type Controls,
  readControls,
  withoutControls,
} from "../serving/controls.ts";
import { MODEL_IDS, readMedia, type Received } from "../serving/fields.ts";
import { numbers, photoField, photoOf, sizeOf } from "./images.ts";
import { FILM_SECONDS, filmOf, type FilmSeconds } from "./film.ts";
import { pictureOf, type Scene } from "./picture.ts";

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
/** The frames of a spritesheet, beside each other. */
const SHEET_FRAMES = 4;

const creation = videoBody.extend({
  seconds: z.coerce.string().pipe(z.enum(FILM_SECONDS)).default("4"),
  size: z.string().regex(/[02468]x\d*[02468]$/, { error: "even numbers" })
    .default("720x1280").transform(sizeOf),
  input_reference: photoField.optional(),
});
const variants = z.enum(VIDEO_VARIANTS).nullable();

interface Job {
  id: string;
  prompt: string;
  seconds: FilmSeconds;
  scene: Omit<Scene, "words">;
  remixedFrom: string | null;
  controls: Controls;
  createdAtMs: number;
}

/** The jobs of one simulator. */
export class Videos {
  readonly #jobs = new Map<string, Job>();

  constructor(readonly now: WallNow) {}

  /**
   * Plans the answer to any request below `/v1/videos`. Rejects with an `ApiError` for
   * a wrong one.
   */
  async plan(request: Request, received: Received): Promise<Planned> {
    const { pathname } = new URL(request.url);
    const [id = "", action = ""] = pathname.split("/").slice(3);
    const what = `${request.method} ${id && ":id"} ${action}`.trim();
    if (what === "POST") {
      const request = readMedia("video", creation, received);
      const { size, input_reference: photo, ...order } = request;
      const seed = photo === undefined ? "" : await photoOf(photo);
      const scene = { ...size, seed };
      return this.#order({ ...order, scene, remixedFrom: null });
    }
    const job = this.#jobs.get(id);
    if (job === undefined) {
      const message = `Video with id '${id.slice(0, 80)}' not found.`;
      throw new ApiError("not_found", message);
    }
    switch (what) {
      case "GET :id":
        return whole(() => this.#wire(job));
      case "GET :id content":
        return this.#content(job, request);
      case "DELETE :id":
        this.#jobs.delete(id);
        return whole(() => ({ id, object: "video.deleted", deleted: true }));
      case "POST :id remix": {
        const body = parseJsonBody(received.text);
        const { prompt } = checked(videoRemixSchema, body);
        const { seconds, scene } = job;
        return this.#order({ prompt, seconds, scene, remixedFrom: id });
      }
      default:
        throw new ApiError("not_found", "Not Found");
    }
  }

  #order(
    order: Pick<Job, "prompt" | "seconds" | "scene" | "remixedFrom">,
  ): Planned {
    const controls = readControls(order.prompt, "prompt");
    // The fault is in the file.
    const { break: _, ...own } = controls;
    return whole(() => {
      const id = `video_${newRequestId()}`;
      const job = { ...order, id, controls, createdAtMs: this.now() };
      remember(this.#jobs, { key: id, value: job, sizeMax: JOBS_MAX });
      return this.#wire(job);
    }, own);
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
      id,
      object: "video",
      model: MODEL_IDS.video,
      prompt,
      seconds,
      status: isOver ? end : progress < QUEUED ? "queued" : "in_progress",
      progress: Math.floor(progress * 100),
      created_at,
      completed_at: isOver ? created_at + videoSeconds : null,
      expires_at: null,
      size: `${scene.width}x${scene.height}`,
      remixed_from_video_id: job.remixedFrom,
      error: isOver && isVideoFailing ? FAILURE : null,
    };
  }

  #content(job: Job, { url, headers }: Request): Planned {
    const variant = checked(variants, new URL(url).searchParams.get("variant"));
    if (this.#wire(job).status !== "completed") {
      const message =
        "Video is not ready yet, use GET /v1/videos/{video_id} to check status.";
      throw new ApiError("not_found", message);
    }
    const scene = { ...job.scene, words: withoutControls(job.prompt) };
    const range = headers.get("range") ?? "";
    if (variant === "thumbnail") {
      return partOf(pictureOf(scene), range, { contentType: "image/png" });
    }
    if (variant === "spritesheet") {
      const sheet = { ...scene, width: scene.width * SHEET_FRAMES };
      return partOf(pictureOf(sheet), range, { contentType: "image/png" });
    }
    return partOf(filmOf(job.seconds), range, {
      contentType: "video/mp4",
      ...job,
    });
  }
}

/** The object that `make` returns when the answer is due. */
function whole(make: () => object, controls: Controls = {}): Planned {
  return wholeAnswer(controls, {
    pieces: [0],
    end: () => JSON.stringify(make()),
  });
}

/** The part of a file that a `Range` names. */
function partOf(
  file: Uint8Array,
  range: string,
  { contentType, controls = {} }: { contentType: string; controls?: Controls },
): Planned {
  const [match, from = "", to = ""] = /^bytes=(\d*)-(\d*)$/.exec(range) ?? [];
  const size = file.length;
  const isTail = from === "" && to !== "";
  const first = isTail ? Math.max(0, size - Number(to)) : Number(from);
  const end = isTail || to === "" ? size : Math.min(size, Number(to) + 1);
  if (first >= end) {
    throw new ApiError("invalid_value", "Range Not Satisfiable", {
      status: 416,
    });
  }
  const count = Math.ceil((end - first) / PIECE_BYTES);
  const part = file.subarray(first, end);
  const pieces = numbers(count).map((nth) =>
    part.subarray(nth * PIECE_BYTES, (nth + 1) * PIECE_BYTES)
  );
  return {
    controls,
    contentType,
    status: match ? 206 : 200,
    pieces,
    headers: {
      "accept-ranges": "bytes",
      "content-length": String(end - first),
      ...match && { "content-range": `bytes ${first}-${end - 1}/${size}` },
    },
  };
}
