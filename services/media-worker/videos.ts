/** Videos: requests about jobs to model servers, and their answers. */
import { MEDIA_LIMITS, VIDEO_LIMITS } from "@gateway/shared/limits";
import type * as media from "@gateway/shared/openai/media";
import { clip } from "@gateway/shared/process/error_text";
import { isPlain } from "@gateway/shared/upstream/http/content_coding";
import {
  invalidAnswer,
  unsupportedAnswer,
  UpstreamError,
} from "@gateway/shared/upstream/http/errors";
import * as json from "@gateway/shared/upstream/json";
import type { Redact } from "@gateway/shared/upstream/own_answer";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import {
  openBody,
  piecesOf,
  refuseBody,
  textIn,
  throwIfError,
} from "./answer_body.ts";
import { ask, type MediaAttempt } from "./attempt.ts";
import { encodeForm } from "./files/form.ts";

type VideoAttempt = MediaAttempt<media.VideoRequest>;
type VideoFileAttempt = MediaAttempt<
  Extract<media.VideoRequest, { action: "content" }>
>;

const OBJECT_BYTES_MAX = 256 * 1024;
const ID_CHARS_MAX = 1_024;
const TEXT_CHARS_MAX = 1_000;
const MADE = [200, 201, 202];
/** How model servers say that there is no such path, method or job. */
const MISSING = [404, 405, 501];
const FILE_TYPE = /^((video|image)\/[\w.+-]+|application\/octet-stream)$/;

/** What model servers call the four states. */
const STATUSES: readonly [media.VideoStatus, RegExp][] = [
  ["queued", /^(queued|pending|submitted|created)$/],
  ["in_progress", /^(in_progress|processing|running|generating)$/],
  ["completed", /^(completed|succeeded|success)$/],
  ["failed", /^(failed|error|cancell?ed|expired)$/],
];

/**
 * Passes on the bytes of a video, an {@link media.EngineVideo}, or null for one that
 * was deleted.
 */
export async function passOnVideo(attempt: VideoAttempt): Promise<void> {
  const { request, answer } = attempt;
  if (request.action === "content") {
    return await passOnFile({ ...attempt, request });
  }
  await answer.write(JSON.stringify(await jobOf(attempt)));
}

const pathOf = (id: string) => `/videos/${encodeURIComponent(id)}`;

async function jobOf(attempt: VideoAttempt): Promise<media.EngineVideo | null> {
  const { request, server: { config: { model } }, answer } = attempt;
  // The server has started a job: another attempt would start a second one.
  const begin = async (response: ServerResponse) => {
    answer.begin();
    return toVideo(await readObject(response, attempt), attempt);
  };
  if (request.action === "create") {
    const { prompt, fields } = request;
    const members = { model, prompt, ...fields };
    // Every model server takes a form, with the model first; but no form names an
    // address of an image.
    const payload = json.isJsonObject(fields.input_reference)
      ? { body: JSON.stringify(members) }
      : encodeForm(members, answer.context.files);
    return await ask(
      attempt,
      { to: "/videos", statuses: MADE, ...payload },
      begin,
    );
  }
  const to = pathOf(request.id);
  switch (request.action) {
    case "remix":
      return await ask(attempt, {
        to: `${to}/remix`,
        statuses: [...MADE, ...MISSING],
        body: JSON.stringify({ prompt: request.prompt, ...request.fields }),
      }, (response) => {
        if (!MISSING.includes(response.head.status)) return begin(response);
        const message = "The model server cannot remix this video.";
        throw new UpstreamError("request", { message });
      });
    case "delete":
      return await ask(attempt, {
        to,
        method: "DELETE",
        totalMs: VIDEO_LIMITS.askMs,
        statuses: [...MADE, 204, ...MISSING],
      }, ({ head: { status } }) => {
        if (MISSING.includes(status)) throw missing();
        return Promise.resolve(null);
      });
    default:
      return toVideo(await retrieve(request, attempt), attempt);
  }
}

async function retrieve({ id }: { id: string }, attempt: VideoAttempt) {
  const data = await ask(attempt, {
    to: pathOf(id),
    method: "GET",
    totalMs: VIDEO_LIMITS.askMs,
    statuses: [200, 404],
  }, (response) => {
    if (response.head.status === 404) throw missing();
    return readObject(response, attempt);
  });
  return { ...data, id };
}

const missing = () =>
  new UpstreamError("request", {
    code: "not_found",
    message: "The model server does not have this video.",
  });

async function readObject(
  response: ServerResponse,
  { answer }: VideoAttempt,
): Promise<json.JsonObject> {
  const body = await openBody(response, answer);
  const data = json.parseJson(await textIn(body, OBJECT_BYTES_MAX));
  if (!json.isJsonObject(data)) throw invalidAnswer("A video that is not JSON");
  return data;
}

function toVideo(
  data: json.JsonObject,
  { server }: VideoAttempt,
): media.EngineVideo {
  const { redact } = server;
  const word = json.textOf(data.status).toLowerCase();
  const [status] = STATUSES.find(([, names]) => names.test(word)) ?? [];
  if (status === undefined) {
    throwIfError(data, server);
    throw unsupportedAnswer(`A video with the status "${clip(word)}"`);
  }
  const id = json.textOf(data.id);
  if (!/^(?!\.{1,2}$)[^\p{Cc}\p{Cs}]+$/u.test(id) || id.length > ID_CHARS_MAX) {
    throw unsupportedAnswer("A video without an id");
  }
  const error: json.JsonObject = json.isJsonObject(data.error)
    ? data.error
    : { message: data.error };
  const reason = clip(redact(json.textOf(error.message)), TEXT_CHARS_MAX);
  const progress = Math.floor(Number(data.progress ?? 0));
  const seconds = textOrNumber(data.seconds);
  return {
    backend: server.config.name,
    id,
    status,
    progress: status === "completed"
      ? 100
      : Math.min(Math.max(progress || 0, 0), 99),
    completed_at: timeOf(data.completed_at),
    expires_at: timeOf(data.expires_at),
    seconds: Number(seconds) > 0 && Number(seconds) < MEDIA_LIMITS.secondsMax
      ? seconds
      : null,
    size: textOrNumber(data.size),
    error: status !== "failed" ? null : {
      code: redact(json.textOf(error.code)).slice(0, 100) || "video_failed",
      message: reason || "The model server could not make this video.",
    },
    more: moreOf(data, redact),
  };
}

/** Members of a video that the gateway states itself, keeps from clients or serves. */
const OWN_MEMBERS = new Set([
  "id",
  "object",
  "model",
  "status",
  "progress",
  "created_at",
  "completed_at",
  "expires_at",
  "seconds",
  "size",
  "error",
  "remixed_from_video_id",
  // The gateway keeps no prompts, and serves the file itself.
  "prompt",
  "url",
  "file_path",
  "file_name",
]);

/** What else the server says of a video; nothing if that is too much to keep. */
function moreOf(data: json.JsonObject, redact: Redact): json.JsonObject {
  const isOther = ([name, value]: [string, unknown]) =>
    !OWN_MEMBERS.has(name) && value !== null;
  const more = Object.fromEntries(Object.entries(data).filter(isOther));
  const text = JSON.stringify(
    more,
    (_name, value: unknown) =>
      typeof value === "string" ? redact(value) : value,
  );
  const read = text.length > MEDIA_LIMITS.videoMoreCharsMax
    ? undefined
    : json.parseJson(text);
  return json.isJsonObject(read) ? read : {};
}

/** Unix seconds, perhaps with fractions. */
function timeOf(value: unknown): number | null {
  const seconds = Math.floor(Number(value ?? NaN));
  return Number.isSafeInteger(seconds) && seconds > 0 ? seconds : null;
}

function textOrNumber(value: unknown): string | null {
  const text = typeof value === "number" ? String(value) : json.textOf(value);
  return text.slice(0, 20) || null;
}

async function passOnFile(attempt: VideoFileAttempt): Promise<void> {
  const { request: { id, variant }, request, server } = attempt;
  const query = variant === "video" ? "" : `?variant=${variant}`;
  if (await isPassedOn(`${pathOf(id)}/content${query}`, attempt)) return;
  // Some servers only send the URL of the video.
  const { url }: json.JsonObject = variant === "video"
    ? await retrieve(request, attempt)
    : {};
  if (json.textOf(url) === "") throw missing();
  const own = server.ownUrl(json.textOf(url));
  if (own === null) throw unsupportedAnswer("A video on another server");
  if (!await isPassedOn(own, attempt)) throw missing();
}

/** Passes on a file as fast as the client takes it. False if there is none. */
function isPassedOn(
  to: string | URL,
  attempt: VideoFileAttempt,
): Promise<boolean> {
  const { request: { range: headers }, answer } = attempt;
  return ask(attempt, {
    to,
    method: "GET",
    accept: "video/*, image/*",
    headers,
    statuses: [200, 206, 404, 416],
  }, async (response) => {
    const { status, contentEncoding, fileHeaders, framing } = response.head;
    if (status === 404) return false;
    if (status === 416) {
      throw new UpstreamError("request", {
        status,
        wireCode: "range_not_satisfiable",
        message: "The file does not have this range.",
      });
    }
    // A part of a file may begin like anything.
    const body = await openBody(response, {
      progress: answer.progress,
      trusted: status === 206 ? "file" : null,
    });
    if (body.form !== "file" || !FILE_TYPE.test(body.type)) {
      return await refuseBody(body, "a video");
    }
    // A part of the compressed bytes is no part of the file itself.
    if (status === 206 && !isPlain(contentEncoding)) {
      throw unsupportedAnswer("A compressed part of a video");
    }
    const headers = typeof framing === "number" && isPlain(contentEncoding)
      ? { ...fileHeaders, "content-length": String(framing) }
      : fileHeaders;
    answer.changeHead({
      content_type: body.type,
      headers,
      status: status === 206 ? 206 : 200,
    });
    for await (const piece of piecesOf(body, VIDEO_LIMITS.fileBytesMax)) {
      await answer.write(piece);
    }
    // An empty file has only the head.
    await answer.write("");
    return true;
  });
}
