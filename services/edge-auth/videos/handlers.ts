/** The requests of `/v1/videos`. */
import { scopeOf } from "@gateway/shared/models/kinds";
import {
  ApiError,
  fieldError,
  internalError,
} from "@gateway/shared/openai/error";
import {
  type Video,
  VIDEO_VARIANTS,
  videoRemixSchema,
  type VideoRequest,
  videoSchema,
} from "@gateway/shared/openai/media";
import { checked } from "@gateway/shared/openai/request_fault";
import { z } from "zod";
import { WholeBody } from "../dispatch/request_body.ts";
import { isForm } from "../http/form_parser.ts";
import { sendError, sendJson } from "../http/responses.ts";
import type { RunLease } from "../limits/admission.ts";
import { costsNothing, costsOnly } from "../limits/cost.ts";
import { requirePassable } from "../media/passable.ts";
import { answerAsFile, unreadable } from "../media/relay.ts";
import { FILE_BYTES_MAX, readVideo, readVideoForm } from "../media/requests.ts";
import { type AnswerLease, WholeAnswer } from "../requests/answer.ts";
import { cleanJson } from "../requests/body/parse_request.ts";
import {
  ANSWERED,
  type AuthenticatedCall,
  type CallHandler,
} from "../requests/call.ts";
import type { Endpoint, UploadEndpoint } from "../requests/endpoint.ts";
import { admit } from "../requests/admit.ts";
import {
  left,
  runRequest,
  type RunRequestDependencies,
  startRun,
} from "../requests/run_request.ts";
import { runUpload } from "../requests/upload/run_upload.ts";
import { engineVideoIn } from "./engine_report.ts";
import { listQuery, type VideoJob } from "./jobs.ts";
import { secondsOf, type VideoKeeper } from "./keeper.ts";

/** What the requests of `/v1/videos` need. */
export interface VideoDependencies extends RunRequestDependencies {
  videos: Omit<VideoKeeper, "start">;
}

const ID = /^video_[0-9a-f]{32}$/;
/**
 * One part of a file. Other ranges are ignored, as RFC 9110 allows: the answer is the
 * whole file.
 */
const RANGE = /^bytes=(\d{1,15}-\d{0,15}|-\d{1,15})$/;
const IF_RANGE = /^[\x20-\x7e]{1,200}$/;
const SCOPE = scopeOf("video");
const contentQuery = z.object({
  variant: z.enum(VIDEO_VARIANTS).default("video"),
});
const REMIX_FIELDS = new Set(["prompt"]);
const wireSchema = z.object(videoSchema.shape);

/**
 * The handlers of `/v1/videos`, by what they do. Each throws the error of a refusal.
 */
export const VIDEOS = {
  async create(context, deps) {
    const isUpload = isForm(context.exchange.headers);
    const run = isUpload ? runUpload : runRequest;
    const parse = isUpload ? readVideoForm : readVideo;
    return await run(context, creation(deps, null, parse), deps);
  },
  async remix(context, deps) {
    const job = await findJob(context, deps);
    const { model, backend, engineId } = job;
    const endpoint = creation(deps, job, (body) => {
      const remix = cleanJson(checked(videoRemixSchema, body));
      const { prompt, ...fields } = remix;
      const config = deps.catalog.get(model);
      if (config !== undefined) requirePassable(fields, REMIX_FIELDS, config);
      const about = { kind: "video", action: "remix", stream: false } as const;
      return { ...about, prompt, fields, model, backend, id: engineId };
    });
    return await runRequest(context, { ...endpoint, model }, deps);
  },
  /** Lists videos from the registry alone, with the states that were seen last. */
  async list({ exchange, principal }, { videos, admission }) {
    const allowed = await admission.modelsOf(principal, SCOPE);
    const page = checked(listQuery, membersOf(exchange.query));
    const isShown = isAllowed(allowed);
    const found = await videos.list(principal.ownerId, page, isShown);
    if (found === null) {
      const message = "Invalid 'after': there is no such video.";
      throw fieldError("invalid_value", "after", message);
    }
    const data = found.jobs.map((job) => toWire(job));
    sendJson(exchange.response, {
      object: "list",
      data,
      has_more: found.hasMore,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
    });
    return ANSWERED;
  },
  async retrieve(context, deps) {
    const job = await currentJob(context, deps);
    sendJson(context.exchange.response, toWire(job));
    return ANSWERED;
  },
  async remove(context, deps) {
    // A video that has completed in the meantime is charged.
    const job = await currentJob(context, deps);
    const lease = await admitTo(job, context, deps);
    if (lease === null) return left(context);
    await deps.videos.remove(job).finally(() => lease.undo());
    const deleted = { id: context.id, object: "video.deleted", deleted: true };
    sendJson(context.exchange.response, deleted);
    return ANSWERED;
  },
  async sendContent(context, deps) {
    const { headers, query } = context.exchange;
    const job = await currentJob(context, deps);
    const { status, model, backend, engineId } = job;
    const { variant } = checked(contentQuery, membersOf(query));
    if (status !== "completed") {
      const why = status === "failed"
        ? "This video failed, so it has no file."
        : "Video is not ready yet, use GET /v1/videos/{video_id} to check " +
          "status.";
      throw new ApiError("not_found", why);
    }
    const lease = await admitTo(job, context, deps);
    if (lease === null) return left(context);
    const range: Record<string, string> = {};
    const part = headers.range ?? "";
    const since = headers["if-range"]?.toString() ?? "";
    if (RANGE.test(part)) {
      range.range = part;
      if (IF_RANGE.test(since)) range["if-range"] = since;
    }
    const request: VideoRequest = {
      kind: "video",
      action: "content",
      stream: false,
      model,
      backend,
      id: engineId,
      variant,
      range,
    };
    const { kind, stream } = request;
    const body = WholeBody.encode(request);
    const createAnswer = answerAsFile(request);
    const facts = { kind, model, stream };
    const release = () => lease.undo();
    const work = { ...facts, body, createAnswer, lease, release };
    return startRun(context, work, deps);
  },
} satisfies Record<string, CallHandler<VideoDependencies>>;

type Creation = Extract<VideoRequest, { prompt: string }>;

/** What is kept of the request for a video while that begins. */
interface CreationFacts extends Pick<Creation, "model" | "prompt"> {
  readonly seconds: VideoJob["seconds"] | undefined;
  readonly secondsLeast: number;
  readonly size: VideoJob["size"] | undefined;
  /** The id of the video that is remixed. */
  readonly remixedId: string | null;
}

/**
 * The endpoint that starts a job, for one request. The seconds are counted when the
 * video completes.
 */
function creation(
  { videos }: VideoDependencies,
  remixed: VideoJob | null,
  parse: Endpoint<Creation>["parse"],
): UploadEndpoint<Creation> {
  return {
    kind: "video",
    form: {
      files: { input_reference: [0, 1] },
      fileBytesMax: FILE_BYTES_MAX.reference,
    },
    parse,
    estimate: (request) => {
      const { seconds } = factsOf(request, remixed);
      return costsOnly("videoSeconds", secondsOf(seconds ?? remixed?.seconds));
    },
    least: costsOnly("videoSeconds", secondsOf(null)),
    answer(request) {
      const facts = factsOf(request, remixed);
      return ({ out, lease }) =>
        new WholeAnswer((result) => {
          begin(result, { ...facts, lease, videos }).then(
            (video) => sendJson(out, video, lease?.headers),
            (error: unknown) => {
              const isKnown = error instanceof ApiError;
              sendError(out, isKnown ? error : internalError(error));
            },
          );
        }, out);
    },
  };
}

/** What is kept of a request for a video; a remix is as long and as large as before. */
function factsOf(request: Creation, remixed: VideoJob | null): CreationFacts {
  const { seconds, secondsLeast = 0, size }: Partial<CreationFacts> =
    request.action === "create" ? request : remixed ?? {};
  const { model, prompt } = request;
  const remixedId = remixed?.id ?? null;
  return { model, prompt, seconds, secondsLeast, size, remixedId };
}

/**
 * Registers the video that a worker has begun. Throws the error of the worker, or that
 * its answer cannot be read.
 */
async function begin(
  result: Uint8Array | ApiError,
  { videos, lease, prompt, remixedId, seconds, size, ...facts }:
    & CreationFacts
    & Pick<VideoDependencies, "videos">
    & { lease: AnswerLease | null },
): Promise<Video> {
  const video = engineVideoIn(result);
  const reservation = lease?.reservation;
  if (reservation === undefined) throw unreadable();
  if (video === null) {
    await videos.release(reservation);
    throw unreadable();
  }
  const job = await videos.begin(video, {
    ...facts,
    reservation,
    seconds: seconds ?? null,
    size: size ?? null,
    remixed_from_video_id: remixedId,
  });
  return toWire(job, prompt);
}

/** A video that the key may see. Another owner's is answered like an unknown one. */
async function findJob(
  { id, principal }: AuthenticatedCall,
  { videos, admission }: VideoDependencies,
): Promise<VideoJob> {
  const [allowed, job] = await Promise.all([
    admission.modelsOf(principal, SCOPE),
    ID.test(id) ? videos.find(principal.ownerId, id) : null,
  ]);
  return job !== null && isAllowed(allowed)(job) ? job : notFound();
}

/** As {@link findJob}, with the current state of the video. */
async function currentJob(
  context: AuthenticatedCall,
  deps: VideoDependencies,
): Promise<VideoJob> {
  const job = await findJob(context, deps);
  return await deps.videos.refresh(job) ?? notFound();
}

/**
 * Admits a request about a video that takes a slot of a worker for itself: until it has
 * ended it is one of those of its key, and costs nothing. Null if the client has left
 * meanwhile.
 */
function admitTo(
  { model }: VideoJob,
  context: AuthenticatedCall,
  deps: VideoDependencies,
): Promise<RunLease | null> {
  const estimate = costsNothing();
  return admit(
    context,
    { scope: SCOPE, model, estimate, isReturned: true },
    deps,
  );
}

const isAllowed = (models: readonly string[]) => ({ model }: VideoJob) =>
  models.length === 0 || models.includes(model);

function notFound(): never {
  throw new ApiError("not_found", "There is no video with this id.");
}

const membersOf = (query: string) =>
  Object.fromEntries(new URLSearchParams(query));

/** A job as clients see it. Its prompt is known only to the request that starts it. */
const toWire = (job: VideoJob, prompt: string | null = null): Video => ({
  ...job.more,
  ...wireSchema.parse({ ...job, object: "video", prompt }),
});
