/** Images: requests to model servers, and their answers. */
import { Buffer } from "node:buffer";
import type { UploadedFile } from "@gateway/shared/bus/job";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ImageRequest } from "@gateway/shared/openai/media";
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { AttemptDeadlines } from "@gateway/shared/upstream/attempt_deadlines";
import { encodeForm } from "@gateway/shared/upstream/form_data";
import {
  invalidAnswer,
  truncatedAnswer,
  UpstreamError,
} from "@gateway/shared/upstream/errors";
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
import type { Redact } from "@gateway/shared/upstream/redact";
import { frameError } from "@gateway/shared/upstream/refusal";
import type { HeldBytes } from "./answer_memory.ts";
import { eventsOf, isError, type ReadOptions, usageOf } from "./events.ts";
import { EVENT_STREAM, type MediaAnswer } from "./media_answer.ts";

const BYTES_MAX = MEDIA_LIMITS.imageAnswerBytesMax;
const NOT_BASE64 = /[^A-Za-z0-9+/]/;
const PADDING = /^={1,2}$/;
const DATA_URL = /^data:[^,]{0,200};base64,/;
const DATA_URL_CHARS_MAX = 256;
/** Written at once. */
const PIECE_CHARS = 64 * 1024;
/** Options that are sent if the client chose them. `auto` means the same as no option, and some servers refuse it. */
const OPTIONS = [
  "size",
  "quality",
  "background",
  "output_format",
  "output_compression",
  "moderation",
  "style",
  "user",
  "input_fidelity",
] as const satisfies readonly (keyof ImageRequest)[];
/** What an answer says about its images, and what events say if the server does not. */
const ABOUT = [
  ["background", "auto"],
  ["output_format", "png"],
  ["quality", "auto"],
  ["size", "auto"],
] as const;
/** The events of model servers, whichever of the two endpoints they name. */
const EVENT = /^image_(?:generation|edit)\.(completed|partial_image)$/;
type EventKind = "completed" | "partial_image";
const EVENT_PREFIX = { generate: "image_generation", edit: "image_edit" };

/** What a server is asked for. Images are always requested in base64. */
function askedOf(
  request: ImageRequest,
  { model, image_format_field: field = "response_format" }: ImageConfig,
): JsonObject {
  const asked: JsonObject = { model, prompt: request.prompt };
  if (field !== "none") asked[field] = "b64_json";
  if (request.n > 1) asked.n = request.n;
  // Without partial images the only event would be the whole answer, and some servers refuse to stream.
  if (hasPartials(request)) {
    asked.stream = true;
    asked.partial_images = request.partial_images;
  }
  for (const option of OPTIONS) {
    if (request[option] !== "auto") asked[option] = request[option];
  }
  return asked;
}

type ImageConfig = Pick<BackendConfig, "model" | "image_format_field">;
const hasPartials = ({ stream, partial_images = 0 }: ImageRequest) =>
  stream && partial_images > 0;

/** The body of a request for new images. */
export const encodeImageBody = (
  request: ImageRequest,
  config: ImageConfig,
): string => JSON.stringify(askedOf(request, config));

/** The form of a request to edit images: model servers do not take JSON. The model comes first, the files last. */
export function encodeEditForm(
  request: ImageRequest,
  config: ImageConfig,
  files: readonly UploadedFile[],
  boundary: string,
) {
  const fields = Object.entries(askedOf(request, config))
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, String(value)] as const);
  const isOne = files.filter(({ field }) => field === "image").length === 1;
  const named = files.map((file) => ({
    ...file,
    field: file.field === "image" && !isOne ? "image[]" : file.field,
  }));
  return encodeForm(fields, named, boundary);
}

/** One attempt to get images. */
export interface ImageCall {
  request: ImageRequest;
  server: ModelServer;
  answer: MediaAnswer;
  read: ReadOptions;
  /** Counts the memory of this answer. */
  held: HeldBytes;
  /** The end of the attempt, by the clock of the server. */
  endsAtMs: number;
}

/** An image, and what its server says about it. */
interface Picture {
  base64: string;
  data: JsonObject;
}

/** A request to a model server. */
export type EncodedRequest = Pick<ServerRequest, "encode" | "body">;

/**
 * Sends a request to a model server and passes on its images: in one document or, with
 * `stream`, as events, whichever of the two the server sends. Rejects with an
 * `UpstreamError`, or with `overloaded` if there is no memory for them.
 */
export async function passOnPictures(
  call: ImageCall,
  encoded: EncodedRequest,
): Promise<void> {
  const { request, server, answer } = call;
  const sent: ServerRequest = {
    ...encoded,
    call: answer.call,
    signal: answer.call.signal,
    // The first bytes of a complete image take as long as the image.
    mustBeginSoon: hasPartials(request),
  };
  // Null: the images were passed on as they arrived.
  const whole = await server.exchange(sent, async (response) => {
    const { contentType } = response.head;
    if (contentType === EVENT_STREAM) return await readEvents(response, call);
    if (!/^$|json$/.test(contentType)) {
      throw invalidAnswer(`${contentType} instead of images`);
    }
    return parseWhole(await readBytes(response, call), server.redact);
  });
  if (whole === null) return;
  const pictures: Picture[] = [];
  for (const data of whole.items.slice(0, request.n)) {
    pictures.push({ data, base64: await base64Of(data, call) });
  }
  const [first] = pictures;
  if (first === undefined) throw truncatedAnswer("No image");
  answer.made = pictures.length;
  if (!request.stream) return await writeDocument(pictures, whole.about, call);
  await writeEvent("completed", { ...first, data: whole.about }, call);
}

/** The images of an answer, and what else it says. */
interface Whole {
  items: JsonObject[];
  about: JsonObject;
}

/** A whole body, kept outside of the heap of JavaScript until it is complete. */
async function readBytes(
  { connection, deadlines }: ServerResponse,
  { held, read }: ImageCall,
): Promise<Buffer> {
  const before = held.bytes;
  const pieces: Uint8Array[] = [];
  connection.bytesLeft = BYTES_MAX;
  for (;;) {
    const piece = await connection.read();
    if (piece === null) return Buffer.concat(pieces);
    pieces.push(piece.slice());
    held.set(before + BYTES_MAX - connection.bytesLeft);
    // Not earlier: some servers send a head long before they have an image.
    deadlines.arm("betweenTokens", read.betweenMs);
  }
}

function parseWhole(body: Buffer, redact: Redact): Whole {
  const about = parseJson(body.toString());
  if (!isJsonObject(about)) throw invalidAnswer("An answer that is not JSON");
  if (isError(about)) throw frameError(about, redact);
  return wholeOf(about);
}

function wholeOf(about: JsonObject): Whole {
  const { data } = about;
  if (!Array.isArray(data)) throw invalidAnswer("An answer without data");
  return { items: data.filter(isJsonObject), about };
}

/**
 * Passes on the images of events. If the client wants a document, returns the final ones
 * instead.
 */
async function readEvents(
  response: ServerResponse,
  call: ImageCall,
): Promise<Whole | null> {
  const { request, answer, held } = call;
  response.connection.bytesLeft = BYTES_MAX;
  const items: JsonObject[] = [];
  const events = eventsOf(response, {
    ...call.read,
    eventCharsMax: BYTES_MAX,
    onHeld: (chars) => held.set(chars),
  });
  for await (const { type, data } of events) {
    // The last event of vLLM-Omni is a whole answer.
    if (type === "image") return wholeOf(data);
    const kind = kindOf(type);
    if (kind === null) continue;
    const isLast = kind === "completed";
    if (request.stream) {
      const base64 = await base64Of(data, call);
      if (isLast) answer.made = 1;
      await writeEvent(kind, { base64, data }, call, response.deadlines);
      if (isLast) return null;
    } else if (isLast && items.push(data) === request.n) break;
  }
  if (items.length === 0) throw truncatedAnswer("No final image");
  return { items, about: items[0] ?? {} };
}

function kindOf(type: string): EventKind | null {
  const [, kind] = EVENT.exec(type) ?? [];
  return kind === "completed" || kind === "partial_image" ? kind : null;
}

/** The image in base64. If the server only sends its URL, it is fetched from that server. */
async function base64Of(data: JsonObject, call: ImageCall): Promise<string> {
  const inline = textOf(data.b64_json);
  const given = inline === "" ? textOf(data.url) : inline;
  if (given === "") throw invalidAnswer("An image without data");
  const prefix = DATA_URL.exec(given.slice(0, DATA_URL_CHARS_MAX))?.[0] ?? "";
  if (inline === "" && prefix === "") return await fetchPicture(given, call);
  const base64 = given.slice(prefix.length);
  const end = base64.search(NOT_BASE64);
  const isPadded = end < 0 || PADDING.test(base64.slice(end, end + 3));
  if (base64 === "" || !isPadded) {
    throw invalidAnswer("An image that is not base64");
  }
  return base64;
}

/** Fetches an image from the model server itself: no other server, no redirect. */
async function fetchPicture(address: string, call: ImageCall): Promise<string> {
  const { server, answer } = call;
  const url = server.ownUrl(address);
  if (url === null) throw invalidAnswer("An image on another server");
  const get = { method: "GET", accept: "image/*", contentType: null } as const;
  const sent = {
    encode: server.encoder(url, get),
    body: "",
    call: answer.call,
    signal: answer.call.signal,
    mustBeginSoon: true,
    totalMs: Math.max(0, call.endsAtMs - server.now()),
  };
  try {
    const picture = await server.exchange(sent, (response) => {
      const { contentType } = response.head;
      if (!/json$|^text\//.test(contentType)) return readBytes(response, call);
      throw invalidAnswer(`${contentType} instead of an image`);
    });
    if (picture.length === 0) throw truncatedAnswer("An empty image");
    return picture.toString("base64");
  } catch (error) {
    // The client did not send this request, so its refusal is the server's fault.
    if (!(error instanceof UpstreamError) || error.fault !== "request") {
      throw error;
    }
    throw invalidAnswer(`An image that is refused:  ${error.logText}`);
  }
}

/** Passes on an image between two texts, without copying it. */
async function writePicture(
  [before, base64, after]: readonly [string, string, string],
  { answer }: ImageCall,
  deadlines?: AttemptDeadlines,
): Promise<void> {
  await answer.write(before, deadlines);
  for (let at = 0; at < base64.length; at += PIECE_CHARS) {
    await answer.write(base64.slice(at, at + PIECE_CHARS), deadlines);
  }
  await answer.write(after, deadlines);
}

async function writeEvent(
  kind: EventKind,
  { base64, data }: Picture,
  call: ImageCall,
  deadlines?: AttemptDeadlines,
): Promise<void> {
  const { request } = call;
  const after: JsonObject = {
    created_at: secondsOf(data, call),
  };
  for (const [name, preset] of ABOUT) {
    after[name] = textOf(data[name]) || (request[name] ?? preset);
  }
  if (kind === "completed") after.usage = usageOf(data.usage, request.prompt);
  else after.partial_image_index = Number(data.partial_image_index) || 0;
  const type = `${EVENT_PREFIX[request.task]}.${kind}`;
  const before = `event: ${type}\ndata: {"type":"${type}","b64_json":"`;
  const end = `",${JSON.stringify(after).slice(1)}\n\n`;
  await writePicture([before, base64, end], call, deadlines);
}

async function writeDocument(
  pictures: readonly Picture[],
  about: JsonObject,
  call: ImageCall,
): Promise<void> {
  const created = secondsOf(about, call);
  let before = `{"created":${created},"data":[{"b64_json":"`;
  for (const { base64, data } of pictures) {
    const revised = textOf(data.revised_prompt);
    const prompt = `,"revised_prompt":${JSON.stringify(revised)}`;
    const after = `"${revised === "" ? "" : prompt}}`;
    await writePicture([before, base64, after], call);
    before = `,{"b64_json":"`;
  }
  const rest: JsonObject = {};
  for (const [name] of ABOUT) {
    if (textOf(about[name]) !== "") rest[name] = about[name];
  }
  if (isJsonObject(about.usage)) rest.usage = about.usage;
  const tail = JSON.stringify(rest).slice(1);
  await call.answer.write(tail === "}" ? "]}" : `],${tail}`);
}

/** When it was made in Unix seconds, by default when it was requested. */
function secondsOf(
  { created, created_at }: JsonObject,
  { answer }: ImageCall,
): number {
  const stated = created_at ?? created;
  const isTime = typeof stated === "number" && Number.isSafeInteger(stated);
  return isTime ? stated : answer.call.created;
}
