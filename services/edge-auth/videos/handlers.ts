/** The requests of `/v1/videos`. */
import type { Principal } from "@gateway/shared/keys/record";
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import { SCOPE_OF_KIND } from "@gateway/shared/models/kinds";
import { ApiError, fieldError } from "@gateway/shared/openai/error";
import {
  type EngineVideo,
  type Video,
  VIDEO_VARIANTS,
  videoRemixSchema,
  type VideoRequest,
  videoRequestSchema,
} from "@gateway/shared/openai/video";
import { requestFault } from "@gateway/shared/openai/request_fault";
import { integer } from "@gateway/shared/openai/fields";
import * as z from "zod";
import { keyRevoked } from "../dispatch/dispatcher.ts";
import { FORM_TYPE } from "../http/read_form.ts";
import {
  abandon,
  internalError,
  sendError,
  sendJson,
} from "../http/responses.ts";
import { costsOnly } from "../limits/cost.ts";
import { MediaAnswer } from "../media/answer.ts";
import { requireFiles } from "../media/endpoints.ts";
import { parseRequest, requireCleanJson } from "../requests/parse_request.ts";
import {
  type AnswerOptions,
  type RunCall,
  runRequest,
  type RunRequestDependencies,
  startRun,
} from "../requests/run_request.ts";
import { runUpload } from "../requests/run_upload.ts";
import { EngineAnswer, unread } from "./ask.ts";
import type { VideoJob } from "./jobs.ts";
import { SECONDS_DEFAULT, type VideoKeeper } from "./keeper.ts";

export interface VideoDependencies extends RunRequestDependencies {
  videos: Omit<VideoKeeper, "start" | "stop">;
}

const ID = /^video_[0-9a-f]{32}$/;
/** One part of a file. Other ranges are ignored, as RFC 9110 allows: the answer is the whole file. */
const RANGE = /^bytes=(\d{1,15}-\d{0,15}|-\d{1,15})$/;
const IF_RANGE = /^[\x20-\x7e]{1,200}$/;
const SCOPE = SCOPE_OF_KIND.video;

const listQuery = z.object({
  limit: z.coerce.number().pipe(integer(0, VIDEO_LIMITS.listMax)).default(20),
  order: z.enum(["asc", "desc"]).default("desc"),
  after: z.string().exactOptional(),
});
const contentQuery = z.object({
  variant: z.enum(VIDEO_VARIANTS).default("video"),
});

/** `POST /v1/videos`, as JSON or as a form. */
export async function createVideo(
  call: RunCall,
  principal: Principal,
  deps: VideoDependencies,
): Promise<void> {
  const { catalog: models } = deps;
  const endpoint = creation(deps, null, (given) => {
    const [schema, kind] = [videoRequestSchema, "video"] as const;
    return parseRequest(given, { schema, kind, models }).request;
  });
  const { headers } = call.exchange;
  if (!FORM_TYPE.test(headers.get("content-type") ?? "")) {
    return await runRequest(call, principal, endpoint, deps);
  }
  await runUpload(call, principal, {
    ...endpoint,
    form: {
      fileFields: ["input_reference"],
      fileBytesMax: VIDEO_LIMITS.referenceBytesMax,
    },
    parse({ fields, files }) {
      requireFiles(files, "input_reference", [0, 1]);
      return endpoint.parse(fields);
    },
    answer: (options) => endpoint.answer(null, options),
  }, deps);
}

/** `POST /v1/videos/{id}/remix`. */
export async function remixVideo(
  call: RunCall,
  principal: Principal,
  deps: VideoDependencies,
  id: string,
): Promise<void> {
  const job = await findJob(principal, id, deps);
  const { model, backend, engineId } = job;
  call.model = model;
  const endpoint = creation(deps, job, (given) => {
    const { data, error } = videoRemixSchema.safeParse(given);
    if (data === undefined) throw requestFault(given, error);
    const about = { kind: "video", action: "remix", stream: false } as const;
    return { ...about, ...data, model, backend, id: engineId };
  });
  await runRequest(call, principal, endpoint, deps);
}

type Creation = Extract<VideoRequest, { prompt: string }>;

/** The endpoint that starts a job, for one request. The seconds are counted when the video completes. */
function creation(
  { videos }: VideoDependencies,
  remixed: VideoJob | null,
  convert: (given: unknown) => Creation,
) {
  let request: Creation | null = null;
  const begin = async (
    video: EngineVideo | ApiError | null,
    reservation: AnswerOptions["video"],
  ) => {
    if (video instanceof ApiError) throw video;
    if (request === null || reservation === null) throw unread();
    if (video === null) {
      await videos.release(reservation);
      throw unread();
    }
    const { seconds = remixed?.seconds, size = remixed?.size } =
      request.action === "create" ? request : {};
    const job = await videos.begin(video, {
      reservation,
      ...{ model: request.model, seconds: seconds ?? null, size: size ?? null },
      remixed_from_video_id: remixed?.id ?? null,
    });
    return toWire(job, request.prompt);
  };
  return {
    kind: "video" as const,
    estimate: (request: VideoRequest) =>
      costsOnly("videoSeconds", secondsAsked(request, remixed)),
    parse(given: unknown): Creation {
      request = convert(given);
      requireCleanJson(request);
      return request;
    },
    answer: (_request: unknown, options: AnswerOptions) =>
      new EngineAnswer(options.run, (said) => {
        const { out, hold } = options;
        begin(said, options.video).then(
          (video) => hold(() => sendJson(out, video, options.headers)),
          (error: unknown) => hold(() => sendError(out, asApiError(error))),
        );
      }, () => abandon(options.out)),
  };
}

function secondsAsked(request: VideoRequest, remixed: VideoJob | null) {
  const { seconds = remixed?.seconds } = "seconds" in request ? request : {};
  return Math.ceil(Number(seconds)) || SECONDS_DEFAULT;
}

const asApiError = (error: unknown) =>
  error instanceof ApiError ? error : internalError(error);

/** `GET /v1/videos`: from the registry alone, with the state that an edge last saw. */
export async function listVideos(
  { exchange }: RunCall,
  principal: Principal,
  { videos, admission }: VideoDependencies,
): Promise<void> {
  const allowed = await admission.modelsOf(principal, SCOPE);
  const page = readQuery(listQuery, exchange.query);
  const isShown = isAllowed(allowed);
  const found = await videos.list(principal.ownerId, page, isShown);
  if (found === null) {
    const message = "Invalid 'after': there is no such video.";
    throw fieldError("invalid_value", "after", message);
  }
  const data = found.jobs.map((job) => toWire(job));
  sendJson(exchange.response, {
    ...{ object: "list", data, has_more: found.hasMore },
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  });
}

/** `GET /v1/videos/{id}`. */
export async function retrieveVideo(
  { exchange }: RunCall,
  principal: Principal,
  deps: VideoDependencies,
  id: string,
): Promise<void> {
  const job = await findJob(principal, id, deps);
  const now = await deps.videos.refresh(job) ?? notFound();
  sendJson(exchange.response, toWire(now));
}

/** `DELETE /v1/videos/{id}`. */
export async function deleteVideo(
  { exchange }: RunCall,
  principal: Principal,
  deps: VideoDependencies,
  id: string,
): Promise<void> {
  const job = await findJob(principal, id, deps);
  // A video that has completed in the meantime is charged.
  await deps.videos.remove(await deps.videos.refresh(job) ?? notFound());
  const object = "video.deleted";
  sendJson(exchange.response, { id, object, deleted: true });
}

/** `GET /v1/videos/{id}/content`. */
export async function sendVideo(
  call: RunCall,
  principal: Principal,
  deps: VideoDependencies,
  id: string,
): Promise<void> {
  const { headers, query, socket, response } = call.exchange;
  const { dispatcher, now } = deps;
  const askedAtMs = now();
  const job = await findJob(principal, id, deps);
  const { variant } = readQuery(contentQuery, query);
  const { status, model, backend, engineId } = await deps.videos.refresh(job) ??
    notFound();
  if (status !== "completed") {
    throw new ApiError(
      "not_found",
      status === "failed"
        ? "This video failed, so it has no file."
        : "Video is not ready yet, use GET /v1/videos/{video_id} to check " +
          "status.",
    );
  }
  if (socket.destroyed) return abandon(response);
  if (dispatcher.isStoppedSince(principal.keyId, askedAtMs)) throw keyRevoked();
  const range: Record<string, string> = {};
  const [part = "", since] = [headers.get("range"), headers.get("if-range")];
  if (RANGE.test(part)) {
    range.range = part;
    if (since !== undefined && IF_RANGE.test(since)) range["if-range"] = since;
  }
  call.model = model;
  const request: VideoRequest = {
    ...{ kind: "video", action: "content", stream: false },
    ...{ model, backend, id: engineId, variant, range },
  };
  startRun(call, {
    ...{ principal, kind: "video", request, lease: null },
    createAnswer: (options) => new MediaAnswer(options, () => false),
  }, deps);
}

/** A video that the key may see. Another owner's is answered like an unknown one. */
async function findJob(
  principal: Principal,
  id: string,
  { videos, admission }: VideoDependencies,
): Promise<VideoJob> {
  const [allowed, job] = await Promise.all([
    admission.modelsOf(principal, SCOPE),
    ID.test(id) ? videos.find(principal.ownerId, id) : null,
  ]);
  return job !== null && isAllowed(allowed)(job) ? job : notFound();
}

const isAllowed = (models: readonly string[]) => ({ model }: VideoJob) =>
  models.length === 0 || models.includes(model);

function notFound(): never {
  throw new ApiError("not_found", "There is no video with this id.");
}

/** The query parameters. Throws an `ApiError` for the first invalid one. */
function readQuery<Schema extends z.ZodType>(
  schema: Schema,
  query: string,
): z.output<Schema> {
  const given = Object.fromEntries(new URLSearchParams(query));
  const { data, error } = schema.safeParse(given);
  if (data === undefined) throw requestFault(given, error);
  return data;
}

/** A job as clients see it. Its prompt is known only to the request that starts it. */
function toWire(job: VideoJob, prompt: string | null = null): Video {
  const { id, model, status, progress, created_at, completed_at } = job;
  const { expires_at, size, seconds, remixed_from_video_id, error } = job;
  return {
    ...{ id, object: "video", model, status, progress, created_at },
    ...{ completed_at, expires_at, prompt, size, seconds },
    ...{ remixed_from_video_id, error },
  };
}
