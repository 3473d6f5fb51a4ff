/** Videos: requests about jobs to model servers, and their answers. */
import { VIDEO_LIMITS } from "@gateway/shared/limits";
import type {
  EngineVideo,
  VideoRequest,
  VideoStatus,
} from "@gateway/shared/openai/video";
import { clip, isJsonObject } from "@gateway/shared/process/error_text";
import { invalidAnswer, UpstreamError } from "@gateway/shared/upstream/errors";
import { encodeForm } from "@gateway/shared/upstream/form_data";
import {
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  ServerRequest,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import { frameError } from "@gateway/shared/upstream/refusal";
import type { RequestOptions } from "@gateway/shared/upstream/request_encoder";
import { isError, type ReadOptions } from "./events.ts";
import type { MediaAnswer } from "./media_answer.ts";

/** One attempt at a request about a video. */
export interface VideoCall<Request extends VideoRequest = VideoRequest> {
  request: Request;
  server: ModelServer;
  answer: MediaAnswer;
  read: ReadOptions;
  newBoundary: () => string;
}
type CallFor<Action extends VideoRequest["action"]> = VideoCall<
  Extract<VideoRequest, { action: Action }>
>;

/** Of what a model server says about a job. */
const OBJECT_BYTES_MAX = 256 * 1024;
const ID_CHARS_MAX = 1_024;
const TEXT_CHARS_MAX = 1_000;
/** No video is longer: another number is none, and would be charged. */
const SECONDS_MAX = 86_400;
const MADE = [200, 201, 202];
/** How model servers say that there is no such path, method or job. */
const MISSING = [404, 405, 501];

/** What model servers call the four states. */
const STATUSES: readonly [VideoStatus, RegExp][] = [
  ["queued", /^(queued|pending|submitted|created)$/],
  ["in_progress", /^(in_progress|processing|running|generating)$/],
  ["completed", /^(completed|succeeded|success)$/],
  ["failed", /^(failed|error|cancell?ed|expired)$/],
];

/**
 * Sends a request to the model server, and passes on its answer: the bytes of a video,
 * an {@link EngineVideo}, or null for one that was deleted. Rejects with an `UpstreamError`, `not_found` if the server
 * does not have what was requested.
 */
export async function passOnVideo(call: VideoCall): Promise<void> {
  const { request, answer } = call;
  switch (request.action) {
    case "create":
      return await pass(await create({ ...call, request }), call);
    case "retrieve":
      return await pass((await retrieve(request, call)).video, call);
    case "remix":
      return await pass(await remix({ ...call, request }), call);
    case "content":
      return await passOnFile({ ...call, request });
    case "delete":
      return await exchange(call, {
        ...{ method: "DELETE", path: `/${encodeURIComponent(request.id)}` },
        statuses: [...MADE, 204, ...MISSING],
        totalMs: VIDEO_LIMITS.askMs,
      }, async ({ head: { status } }) => {
        if (MISSING.includes(status)) throw missing();
        await answer.write("null");
      });
  }
}

function pass(video: EngineVideo, { answer }: VideoCall): Promise<void> {
  return answer.write(JSON.stringify(video));
}

/** A request to the model server below `/videos`. */
interface Sent
  extends
    Partial<Pick<ServerRequest, "statuses" | "totalMs" | "body">>,
    Pick<RequestOptions, "method"> {
  /** What follows `/videos`, or another URL of the server. */
  path: string | URL;
  contentType?: string;
  accept?: string;
  headers?: RequestOptions["headers"];
  mustBeginSoon?: boolean;
}

function exchange<Result>(
  { server, answer: { call } }: VideoCall,
  sent: Sent,
  read: (response: ServerResponse) => Promise<Result>,
): Promise<Result> {
  const { method, path, body = "", statuses = MADE, totalMs } = sent;
  const { accept = "application/json", contentType = null } = sent;
  const url = typeof path === "string"
    ? new URL(`${server.config.base_url}/videos${path}`)
    : path;
  const like = { method, accept, contentType };
  return server.exchange({
    encode: server.encoder(url, like, sent.headers),
    ...{ body, call, signal: call.signal, statuses },
    mustBeginSoon: sent.mustBeginSoon ?? true,
    ...totalMs === undefined ? {} : { totalMs },
  }, read);
}

/** Starts a job. Always sends a form, which every model server takes, with the model first. */
async function create(call: CallFor<"create">): Promise<EngineVideo> {
  const { request, server, answer, newBoundary } = call;
  const { prompt, seconds, size } = request;
  const given = { model: server.config.model, prompt, seconds, size };
  const fields = Object.entries(given).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const]
  );
  const { contentType, body } = encodeForm(
    fields,
    answer.call.files,
    newBoundary(),
  );
  return await exchange(
    call,
    { method: "POST", path: "", contentType, body },
    (response) => readMade(response, call),
  );
}

async function remix(call: CallFor<"remix">): Promise<EngineVideo> {
  const { id, prompt } = call.request;
  const path = `/${encodeURIComponent(id)}/remix`;
  return await exchange(call, {
    ...{ method: "POST", path, statuses: [...MADE, ...MISSING] },
    ...{ contentType: "application/json", body: JSON.stringify({ prompt }) },
  }, (response) => {
    if (!MISSING.includes(response.head.status)) {
      return readMade(response, call);
    }
    throw new UpstreamError("request", {
      message: "The model server cannot remix this video.",
    });
  });
}

/** The job that was started: another attempt would start a second one. */
async function readMade(
  response: ServerResponse,
  call: VideoCall,
): Promise<EngineVideo> {
  call.answer.begin();
  return toVideo(await readObject(response, call), call);
}

async function retrieve({ id }: { id: string }, call: VideoCall) {
  return await exchange(call, {
    ...{ method: "GET", path: `/${encodeURIComponent(id)}` },
    ...{ statuses: [200, 404], totalMs: VIDEO_LIMITS.askMs },
  }, async (response) => {
    if (response.head.status === 404) throw missing();
    const data = await readObject(response, call);
    const { url } = data;
    return { video: toVideo({ ...data, id }, call), url: textOf(url) };
  });
}

const missing = () =>
  new UpstreamError("request", {
    code: "not_found",
    message: "The model server does not have this video.",
  });

async function readObject(
  { connection }: ServerResponse,
  { read }: VideoCall,
): Promise<JsonObject> {
  connection.bytesLeft = OBJECT_BYTES_MAX;
  const data = parseJson(await connection.readText(read.betweenMs));
  if (!isJsonObject(data)) throw invalidAnswer("A video that is not JSON");
  return data;
}

/** What the model server says, in one form. */
function toVideo(
  data: JsonObject,
  { server, read: { redact } }: VideoCall,
): EngineVideo {
  const said = textOf(data.status).toLowerCase();
  const [status] = STATUSES.find(([, names]) => names.test(said)) ?? [];
  if (status === undefined) {
    if (isError(data)) throw frameError(data, redact);
    throw invalidAnswer(`A video with the status "${clip(said)}"`);
  }
  const id = textOf(data.id);
  if (!/^(?!\.{1,2}$)[^\p{Cc}\p{Cs}]+$/u.test(id) || id.length > ID_CHARS_MAX) {
    throw invalidAnswer("A video without an id");
  }
  const error: JsonObject = isJsonObject(data.error)
    ? data.error
    : { message: data.error };
  const told = clip(redact(textOf(error.message)), TEXT_CHARS_MAX);
  const progress = Math.floor(Number(data.progress ?? 0));
  const seconds = textOrNumber(data.seconds);
  return {
    ...{ backend: server.config.name, id, status },
    progress: status === "completed"
      ? 100
      : Math.min(Math.max(progress || 0, 0), 99),
    completed_at: timeOf(data.completed_at),
    expires_at: timeOf(data.expires_at),
    seconds: Number(seconds) > 0 && Number(seconds) < SECONDS_MAX
      ? seconds
      : null,
    size: textOrNumber(data.size),
    error: status !== "failed" ? null : {
      code: redact(textOf(error.code)).slice(0, 100) || "video_failed",
      message: told || "The model server could not make this video.",
    },
  };
}

/** Unix seconds, perhaps with fractions. */
function timeOf(value: unknown): number | null {
  const seconds = Math.floor(Number(value ?? NaN));
  return Number.isSafeInteger(seconds) && seconds > 0 ? seconds : null;
}

function textOrNumber(value: unknown): string | null {
  const text = typeof value === "number" ? String(value) : textOf(value);
  return text.slice(0, 20) || null;
}

/** Passes on the video, or another file of the job. */
async function passOnFile(call: CallFor<"content">): Promise<void> {
  const { request: { id, variant }, request, server } = call;
  const query = variant === "video" ? "" : `?variant=${variant}`;
  const path = `/${encodeURIComponent(id)}/content${query}`;
  if (await isPassedOn(path, call)) return;
  // Some servers only send the URL of the video.
  const url = variant === "video" ? (await retrieve(request, call)).url : "";
  if (url === "") throw missing();
  const own = server.ownUrl(url);
  if (own === null) throw invalidAnswer("A video on another server");
  if (!await isPassedOn(own, call)) throw missing();
}

/** Passes on a file as fast as the client takes it. False if there is none. */
async function isPassedOn(
  path: string | URL,
  call: CallFor<"content">,
): Promise<boolean> {
  const { request: { range: headers }, answer, read } = call;
  return await exchange(call, {
    ...{ method: "GET", path, accept: "video/*, image/*", headers },
    statuses: [200, 206, 404, 416],
  }, async ({ head, connection, deadlines }) => {
    const { status, contentType, fileHeaders, framing } = head;
    if (status === 404) return false;
    if (status === 416) {
      throw new UpstreamError("request", {
        ...{ status, wireCode: "range_not_satisfiable" },
        message: "The file does not have this range.",
      });
    }
    if (
      !/^((video|image)\/[\w.+-]+|application\/octet-stream)$/.test(contentType)
    ) {
      throw invalidAnswer(`${contentType} instead of a video`);
    }
    answer.head = {
      content_type: contentType,
      status: status === 206 ? 206 : 200,
      headers: {
        ...fileHeaders,
        ...typeof framing === "number"
          ? { "content-length": String(framing) }
          : {},
      },
    };
    connection.bytesLeft = VIDEO_LIMITS.fileBytesMax;
    for (;;) {
      const piece = await connection.read();
      if (piece === null) break;
      await answer.write(piece, deadlines);
      deadlines.arm("betweenTokens", read.betweenMs);
    }
    // An empty file has only the head.
    await answer.write("");
    return true;
  });
}
