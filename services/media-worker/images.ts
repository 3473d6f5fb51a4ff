/** Images: requests to model servers, and their answers. */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { ImageRequest } from "@gateway/shared/openai/media";
import * as errors from "@gateway/shared/upstream/http/errors";
import * as json from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import type { HeldBytes } from "@gateway/shared/worker/jobs/memory";
import {
  type AnswerBody,
  EVENT_STREAM,
  eventsOf,
  openBody,
  piecesOf,
  refuseBody,
  type ServerEvent,
  throwIfError,
} from "./answer_body.ts";
import { ask, type MediaAttempt, usageOf } from "./attempt.ts";
import { kindOf } from "./files/file_types.ts";
import { encodeForm } from "./files/form.ts";

const BYTES_MAX = MEDIA_LIMITS.imageAnswerBytesMax;
const NOT_BASE64 = /[^A-Za-z0-9+/]/;
const PADDING = /^={1,2}$/;
const DATA_URL = /^data:[^,]{0,200};base64,/;
const DATA_URL_CHARS_MAX = 256;
/** The start of an image in base64, by which its kind is known. */
const HEAD_CHARS = 32;
const PIECE_CHARS = 64 * 1024;
/** What events say of their images by default: OpenAI's types have these members. */
const PRESETS: { readonly [name: string]: string } = {
  background: "auto",
  output_format: "png",
  quality: "auto",
  size: "auto",
};
/** Options whose value `auto` means the same as no value; some servers refuse it. */
const MAY_BE_AUTO = new Set(["size", "quality", "background", "moderation"]);
/** Members that the gateway writes itself, or that name a file of the server. */
const OWN_MEMBERS = new Set([
  "type",
  "data",
  "b64_json",
  "url",
  "file_path",
  "created",
  "created_at",
  "model",
]);
/** Members that a client must not get with an event of an unknown type. */
const HIDDEN_MEMBERS = new Set(["type", "url", "file_path", "model"]);
/** Types of events that only keep a connection open. */
const SIGN_OF_LIFE = /^(|ping|keep-?alive|heartbeat)$/;
/** The two events of images: their names may be those of either endpoint. */
const EVENT = /^image_(?:generation|edit)\.(completed|partial_image)$/;
const EVENT_PREFIX = { generate: "image_generation", edit: "image_edit" };

/** One attempt, and what is held of its answer. */
interface ImageAttempt extends MediaAttempt<ImageRequest> {
  heldBytes: HeldBytes;
  /** The end of the attempt, by the clock of the server. */
  endsAtMs: number;
}

/** An image as its server sends it. */
interface Part {
  /** `completed` or `partial_image`. */
  kind: string;
  data: json.JsonObject;
  /** Where the server describes it: beside the images of a document, else with it. */
  about: json.JsonObject;
}

type Picture = Part & {
  base64: string;
  /** An address elsewhere, which a client that asks for addresses gets instead. */
  address?: string;
};

/**
 * Passes on images in one document or, with `stream`, as events, whichever of the two
 * the server sends. Rejects with `overloaded` if there is no memory for them.
 */
export async function draw(attempt: MediaAttempt<ImageRequest>): Promise<void> {
  const { request, server, memory, answer } = attempt;
  const heldBytes = memory.openAnswer();
  const endsAtMs = server.now() + server.config.deadlines.total_ms;
  const imageAttempt = { ...attempt, heldBytes, endsAtMs };
  const parts: Part[] = [];
  answer.noteStarted(request.count);
  try {
    await ask(attempt, {
      ...encodeRequest(attempt),
      accept: `${EVENT_STREAM}, application/json`,
      // The first bytes of a complete image take as long as the image.
      mustBeginSoon: hasPartials(request),
    }, async (response) => {
      for await (const part of partsOf(response, imageAttempt)) {
        const isLast = part.kind === "completed";
        // An event is passed on as it arrives, a document afterwards.
        if (request.stream && part.about === part.data) {
          const picture = await pictureOf(part, imageAttempt);
          if (isLast) answer.noteMade(answer.unitsMade + 1);
          await writeEvent(picture, imageAttempt);
        } else if (isLast) parts.push(part);
        if (answer.unitsMade + parts.length === request.count) return;
      }
    });
    const pictures: Picture[] = [];
    for (const part of parts) {
      // Fetched only now, when the connection of the answer is free again.
      pictures.push(await pictureOf(part, imageAttempt));
    }
    answer.noteMade(answer.unitsMade + pictures.length);
    if (answer.unitsMade === 0) throw errors.truncatedAnswer("No final image");
    if (!request.stream) return await writeDocument(pictures, imageAttempt);
    for (const picture of pictures) await writeEvent(picture, imageAttempt);
  } finally {
    heldBytes.release();
  }
}

const hasPartials = ({ stream, fields }: ImageRequest) =>
  stream && Number(fields.partial_images ?? 0) > 0;

/**
 * What a server is asked for: images in base64, unless the client wants another form.
 */
function encodeRequest(
  { request, server, answer }: MediaAttempt<ImageRequest>,
) {
  const { model, image_format_field: field } = server.config;
  const { prompt, format, fields, task } = request;
  const isOurs = format === "b64_json" || format === "url";
  const inBase64 = field === "none" ? undefined : "b64_json";
  // Without partial images the only event would be the whole answer, and some servers
  // refuse to stream.
  const isPartly = hasPartials(request);
  const options = {
    model,
    prompt,
    response_format: isOurs ? inBase64 : format,
    ...setFields(fields),
  };
  const isJson = task === "generate" || Array.isArray(fields.images);
  if (isJson) {
    const body = JSON.stringify({
      ...options,
      ...isPartly && { stream: true },
    });
    const to = task === "generate" ? "/images/generations" : "/images/edits";
    return { to, body };
  }
  const { files } = answer.context;
  const isOne = files.filter(({ field }) => field === "image").length === 1;
  const uploads = files.map((file) => ({
    ...file,
    field: file.field === "image" && !isOne ? "image[]" : file.field,
  }));
  // Model servers get a form, the model first, the files last.
  const members = { ...options, ...isPartly && { stream: "true" } };
  return { to: "/images/edits", ...encodeForm(members, uploads) };
}

/** The fields of a client, without those that mean the same as none. */
function setFields(fields: ImageRequest["fields"]): json.JsonObject {
  const isChosen = ([name, value]: [string, unknown]) =>
    !(value === "auto" && MAY_BE_AUTO.has(name)) &&
    !(name === "partial_images" && Number(value) === 0);
  return Object.fromEntries(Object.entries(fields).filter(isChosen));
}

async function* partsOf(
  response: ServerResponse,
  attempt: ImageAttempt,
): AsyncGenerator<Part> {
  const body = await openBody(response, attempt.answer);
  if (body.form === "events") return yield* partsOfEvents(body, attempt);
  if (hasPartials(attempt.request)) {
    attempt.answer.progress.onOddity("form_converted", 1);
  }
  if (isPicture(body)) {
    const b64_json = (await readBytes(body, attempt)).toString("base64");
    return yield* partsIn({ data: [{ b64_json }] });
  }
  if (body.form !== "json") await refuseBody(body, "images");
  const about = json.parseJson((await readBytes(body, attempt)).toString());
  if (!json.isJsonObject(about)) {
    throw errors.invalidAnswer("An answer that is not JSON");
  }
  throwIfError(about, response.server);
  yield* partsIn(about);
}

const isPicture = ({ form, type }: AnswerBody) =>
  form === "file" && type.startsWith("image/");

async function* partsOfEvents(
  body: AnswerBody,
  attempt: ImageAttempt,
): AsyncGenerator<Part> {
  const onHeld = (chars: number) => attempt.heldBytes.resize(chars);
  const { progress } = attempt.answer;
  const reading = { progress, bytesMax: BYTES_MAX, onHeld };
  for await (const { type, data } of eventsOf(body, reading)) {
    // The last event of vLLM-Omni is a whole answer.
    if (type === "image") return yield* partsIn(data);
    const [, kind] = EVENT.exec(type) ?? [];
    if (kind !== undefined) yield { kind, data, about: data };
    else await passOther({ type, data }, attempt);
  }
}

/** Passes on an event that OpenAI does not have, such as one of progress. */
async function passOther(
  { type, data }: ServerEvent,
  { request, answer }: ImageAttempt,
): Promise<void> {
  if (!request.stream || SIGN_OF_LIFE.test(type)) {
    return answer.progress.onOddity("event_skipped", 1);
  }
  const isShown = ([name]: [string, unknown]) => !HIDDEN_MEMBERS.has(name);
  const members = Object.fromEntries(Object.entries(data).filter(isShown));
  await answer.writeEvent({ type, ...members });
}

function partsIn(about: json.JsonObject): Part[] {
  const { data } = about;
  if (!Array.isArray(data)) {
    throw errors.unsupportedAnswer("An answer without data");
  }
  return data.filter(json.isJsonObject)
    .map((data) => ({ kind: "completed", data, about }));
}

/** A whole body, kept outside of the heap of JavaScript until it is complete. */
async function readBytes(
  body: AnswerBody,
  { heldBytes }: ImageAttempt,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(body, BYTES_MAX)) {
    pieces.push(piece.slice());
    await heldBytes.grow(piece.length);
  }
  return Buffer.concat(pieces);
}

/**
 * The image in base64. If the server only sends its URL, it is fetched from that
 * server. A URL of another server is only passed on, to clients that ask for URLs.
 */
async function pictureOf(part: Part, attempt: ImageAttempt): Promise<Picture> {
  const { data } = part;
  const inline = json.textOf(data.b64_json);
  const source = inline || json.textOf(data.url);
  if (source === "") throw errors.unsupportedAnswer("An image without data");
  const prefix = DATA_URL.exec(source.slice(0, DATA_URL_CHARS_MAX))?.[0] ?? "";
  if (inline === "" && prefix === "") {
    const isPassed = attempt.request.format === "url" &&
      /^https:\/\//.test(source) && attempt.server.ownUrl(source) === null;
    if (isPassed) return { ...part, base64: "", address: source };
    attempt.answer.progress.onOddity("address_fetched", 1);
    return { ...part, base64: await fetchPicture(source, attempt) };
  }
  const base64 = source.slice(prefix.length);
  const end = base64.search(NOT_BASE64);
  const isPadded = end < 0 || PADDING.test(base64.slice(end, end + 3));
  if (base64 === "" || !isPadded) {
    throw errors.unsupportedAnswer("An image that is not base64");
  }
  return { ...part, base64 };
}

/** Fetches an image from the model server itself: no other server, no redirect. */
async function fetchPicture(
  address: string,
  attempt: ImageAttempt,
): Promise<string> {
  const { server, endsAtMs } = attempt;
  const to = server.ownUrl(address);
  if (to === null) {
    throw errors.unsupportedAnswer("An image on another server");
  }
  try {
    const picture = await ask(attempt, {
      to,
      method: "GET",
      accept: "image/*",
      totalMs: Math.max(0, endsAtMs - server.now()),
    }, async (response) => {
      const body = await openBody(response, attempt.answer);
      if (body.form !== "file") {
        throw errors.unsupportedAnswer(`${body.form} instead of an image`);
      }
      if (body.start === null) throw errors.truncatedAnswer("An empty image");
      return await readBytes(body, attempt);
    });
    return picture.toString("base64");
  } catch (error) {
    // The client did not send this request, so its refusal is the server's fault.
    if (!(error instanceof errors.UpstreamError) || error.fault !== "request") {
      throw error;
    }
    const detail = `An image that is refused: ${error.logText}`;
    throw errors.unsupportedAnswer(detail);
  }
}

/** Passes on an image between two texts, without copying it. */
async function writePicture(
  [before, picture, after]: readonly [string, string, string],
  { answer }: ImageAttempt,
): Promise<void> {
  await answer.write(before);
  for (let at = 0; at < picture.length; at += PIECE_CHARS) {
    await answer.write(picture.slice(at, at + PIECE_CHARS));
  }
  await answer.write(after);
}

/** The members of an object that clients get as the server has sent them. */
function othersOf(about: json.JsonObject): json.JsonObject {
  const isPassed = ([name, value]: [string, unknown]) =>
    !OWN_MEMBERS.has(name) && value !== null;
  return Object.fromEntries(Object.entries(about).filter(isPassed));
}

/** The image as the member that the client asked for, and the text around it. */
function memberOf({ base64, address }: Picture, { request }: ImageAttempt) {
  if (address !== undefined) {
    return { before: `"url":`, text: JSON.stringify(address), after: "" };
  }
  if (request.format !== "url") {
    return { before: `"b64_json":"`, text: base64, after: `"` };
  }
  const start = Uint8Array.fromBase64(base64.slice(0, HEAD_CHARS), {
    lastChunkHandling: "stop-before-partial",
  });
  const type = kindOf(start)?.type ?? "image/png";
  return { before: `"url":"data:${type};base64,`, text: base64, after: `"` };
}

async function writeEvent(
  picture: Picture,
  attempt: ImageAttempt,
): Promise<void> {
  const { kind, data, about } = picture;
  const { request: { fields, prompt, task } } = attempt;
  const more: json.JsonObject = { created_at: secondsOf(about, attempt) };
  for (const [name, preset] of Object.entries(PRESETS)) {
    more[name] = json.textOf(fields[name]) || preset;
  }
  Object.assign(more, othersOf(about), othersOf(data));
  if (kind === "completed") {
    more.usage = usageOf([about.usage, data.usage], prompt);
  } else more.partial_image_index = Number(about.partial_image_index) || 0;
  const type = `${EVENT_PREFIX[task]}.${kind}`;
  const { before, text, after } = memberOf(picture, attempt);
  const start = `event: ${type}\ndata: {"type":"${type}",${before}`;
  const end = `${after},${JSON.stringify(more).slice(1)}\n\n`;
  await writePicture([start, text, end], attempt);
}

async function writeDocument(
  pictures: readonly Picture[],
  attempt: ImageAttempt,
): Promise<void> {
  const about = pictures[0]?.about ?? {};
  let start = `{"created":${secondsOf(about, attempt)},"data":[{`;
  for (const picture of pictures) {
    const { before, text, after } = memberOf(picture, attempt);
    const isEvent = picture.data === about;
    const more = isEvent ? {} : othersOf(picture.data);
    const end = `${after}${tailOf(more)}}`;
    await writePicture([start + before, text, end], attempt);
    start = ",{";
  }
  const rest = othersOf(about);
  // An event says when it was made, and which of several it is.
  delete rest.partial_image_index;
  await attempt.answer.write(`]${tailOf(rest)}}`);
}

/** The members of an object as JSON that follows others; empty if it has none. */
function tailOf(members: json.JsonObject): string {
  const inner = JSON.stringify(members).slice(1, -1);
  return inner === "" ? "" : `,${inner}`;
}

/** When an image was made, in Unix seconds; by default, when it was requested. */
function secondsOf(
  { created, created_at }: json.JsonObject,
  { answer }: ImageAttempt,
): number {
  const seconds = created_at ?? created;
  const isTime = typeof seconds === "number" && Number.isSafeInteger(seconds);
  return isTime ? seconds : answer.context.created;
}
