/** Images: requests to model servers, and their answers. */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { ImageRequest } from "@gateway/shared/openai/media";
import * as errors from "@gateway/shared/upstream/errors";
import * as json from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";
import type { HeldBytes } from "@gateway/shared/worker/memory";
import {
  ask,
  EVENT_STREAM,
  eventsOf,
  type MediaAttempt,
  piecesOf,
  throwIfError,
  usageOf,
} from "./attempt.ts";
import { encodeForm } from "./form.ts";

const BYTES_MAX = MEDIA_LIMITS.imageAnswerBytesMax;
const NOT_BASE64 = /[^A-Za-z0-9+/]/;
const PADDING = /^={1,2}$/;
const DATA_URL = /^data:[^,]{0,200};base64,/;
const DATA_URL_CHARS_MAX = 256;
const PIECE_CHARS = 64 * 1024;
/** What an answer may say about its images, and what events say by default. */
const ABOUT = [
  ["background", "auto"],
  ["output_format", "png"],
  ["quality", "auto"],
  ["size", "auto"],
] as const;
/** Events of model servers, whichever of the two endpoints their names refer to. */
const EVENT = /^image_(?:generation|edit)\.(completed|partial_image)$/;
const EVENT_PREFIX = { generate: "image_generation", edit: "image_edit" };

interface Call extends MediaAttempt<ImageRequest> {
  held: HeldBytes;
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

type Picture = Part & { base64: string };

/**
 * Passes on images in one document or, with `stream`, as events, whichever of the two
 * the server sends. Rejects with `overloaded` if there is no memory for them.
 */
export async function draw(attempt: MediaAttempt<ImageRequest>): Promise<void> {
  const { request, server, memory, answer } = attempt;
  const { total_ms } = server.config.deadlines;
  const held = memory.openAnswer();
  const call = { ...attempt, held, endsAtMs: server.now() + total_ms };
  const imagesMax = request.stream ? 1 : request.n;
  const parts: Part[] = [];
  answer.started = imagesMax;
  try {
    await ask(attempt, {
      ...encodeRequest(attempt),
      accept: `${EVENT_STREAM}, application/json`,
      // The first bytes of a complete image take as long as the image.
      mustBeginSoon: hasPartials(request),
    }, async (response) => {
      for await (const part of partsOf(response, call)) {
        const isLast = part.kind === "completed";
        // An event is passed on as it arrives, a document afterwards.
        if (request.stream && part.about === part.data) {
          const base64 = await base64Of(part.data, call);
          if (isLast) answer.made = 1;
          await writeEvent({ ...part, base64 }, call);
        }
        if (isLast && parts.push(part) === imagesMax) return;
      }
    });
    if (answer.made > 0) return;
    const pictures: Picture[] = [];
    for (const part of parts) {
      // Fetched only now, when the connection of the answer is free again.
      pictures.push({ ...part, base64: await base64Of(part.data, call) });
    }
    const [first] = pictures;
    if (first === undefined) throw errors.truncatedAnswer("No final image");
    answer.made = pictures.length;
    await (request.stream
      ? writeEvent(first, call)
      : writeDocument(pictures, call));
  } finally {
    held.release();
  }
}

const hasPartials = ({ stream, partial_images = 0 }: ImageRequest) =>
  stream && partial_images > 0;

/** What a server is asked for. Images are always requested in base64. */
function encodeRequest(
  { request, server, answer }: MediaAttempt<ImageRequest>,
) {
  const { model, image_format_field: format } = server.config;
  const isPartly = hasPartials(request);
  // `auto` means the same as no option, and some servers refuse it.
  const chosen = <T>(option: T) => option === "auto" ? undefined : option;
  const asked = {
    model,
    prompt: request.prompt,
    response_format: format === "none" ? undefined : "b64_json",
    n: request.n > 1 ? request.n : undefined,
    // Without partial images the only event would be the whole answer, and some servers
    // refuse to stream.
    stream: isPartly || undefined,
    partial_images: isPartly ? request.partial_images : undefined,
    size: chosen(request.size),
    quality: chosen(request.quality),
    background: chosen(request.background),
    output_format: request.output_format,
    output_compression: request.output_compression,
    moderation: chosen(request.moderation),
    style: request.style,
    user: request.user,
    input_fidelity: request.input_fidelity,
  };
  if (request.task === "generate") {
    return { to: "/images/generations", body: JSON.stringify(asked) };
  }
  const { files } = answer.call;
  const isOne = files.filter(({ field }) => field === "image").length === 1;
  const named = files.map((file) => ({
    ...file,
    field: file.field === "image" && !isOne ? "image[]" : file.field,
  }));
  // Model servers do not take JSON. The model comes first, the files last.
  const fields = { ...asked, stream: isPartly ? "true" : undefined };
  return { to: "/images/edits", ...encodeForm(fields, named) };
}

async function* partsOf(
  response: ServerResponse,
  call: Call,
): AsyncGenerator<Part> {
  const { contentType } = response.head;
  if (contentType === EVENT_STREAM) {
    const onHeld = (chars: number) => call.held.resize(chars);
    const events = eventsOf(response, { bytesMax: BYTES_MAX, onHeld });
    for await (const { type, data } of events) {
      // The last event of vLLM-Omni is a whole answer.
      if (type === "image") return yield* partsIn(data);
      const [, kind] = EVENT.exec(type) ?? [];
      if (kind !== undefined) yield { kind, data, about: data };
    }
    return;
  }
  if (!/^$|json$/.test(contentType)) {
    throw errors.invalidAnswer(`${contentType} instead of images`);
  }
  const about = json.parseJson((await readBytes(response, call)).toString());
  if (!json.isJsonObject(about)) {
    throw errors.invalidAnswer("An answer that is not JSON");
  }
  throwIfError(about, response.server);
  yield* partsIn(about);
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
  response: ServerResponse,
  { held }: Call,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(response, BYTES_MAX)) {
    pieces.push(piece.slice());
    await held.grow(piece.length);
  }
  return Buffer.concat(pieces);
}

/**
 * The image in base64. If the server only sends its URL, it is fetched from that
 * server.
 */
async function base64Of(data: json.JsonObject, call: Call): Promise<string> {
  const inline = json.textOf(data.b64_json);
  const given = inline || json.textOf(data.url);
  if (given === "") throw errors.unsupportedAnswer("An image without data");
  const prefix = DATA_URL.exec(given.slice(0, DATA_URL_CHARS_MAX))?.[0] ?? "";
  if (inline === "" && prefix === "") return await fetchPicture(given, call);
  const base64 = given.slice(prefix.length);
  const end = base64.search(NOT_BASE64);
  const isPadded = end < 0 || PADDING.test(base64.slice(end, end + 3));
  if (base64 === "" || !isPadded) {
    throw errors.unsupportedAnswer("An image that is not base64");
  }
  return base64;
}

/** Fetches an image from the model server itself: no other server, no redirect. */
async function fetchPicture(address: string, call: Call): Promise<string> {
  const { server, endsAtMs } = call;
  const to = server.ownUrl(address);
  if (to === null) throw errors.invalidAnswer("An image on another server");
  try {
    const picture = await ask(call, {
      to,
      method: "GET",
      accept: "image/*",
      totalMs: Math.max(0, endsAtMs - server.now()),
    }, (response) => {
      const { contentType } = response.head;
      if (!/json$|^text\//.test(contentType)) return readBytes(response, call);
      throw errors.invalidAnswer(`${contentType} instead of an image`);
    });
    if (picture.length === 0) throw errors.truncatedAnswer("An empty image");
    return picture.toString("base64");
  } catch (error) {
    // The client did not send this request, so its refusal is the server's fault.
    if (!(error instanceof errors.UpstreamError) || error.fault !== "request") {
      throw error;
    }
    throw errors.invalidAnswer(`An image that is refused: ${error.logText}`);
  }
}

/** Passes on an image between two texts, without copying it. */
async function writePicture(
  [before, base64, after]: readonly [string, string, string],
  { answer }: Call,
): Promise<void> {
  await answer.write(before);
  for (let at = 0; at < base64.length; at += PIECE_CHARS) {
    await answer.write(base64.slice(at, at + PIECE_CHARS));
  }
  await answer.write(after);
}

async function writeEvent(
  { kind, base64, about }: Picture,
  call: Call,
): Promise<void> {
  const { request } = call;
  const after: json.JsonObject = { created_at: secondsOf(about, call) };
  for (const [name, preset] of ABOUT) {
    after[name] = json.textOf(about[name]) || (request[name] ?? preset);
  }
  if (kind === "completed") {
    after.usage = usageOf(about.usage, request.prompt);
  } else after.partial_image_index = Number(about.partial_image_index) || 0;
  const type = `${EVENT_PREFIX[request.task]}.${kind}`;
  const before = `event: ${type}\ndata: {"type":"${type}","b64_json":"`;
  const end = `",${JSON.stringify(after).slice(1)}\n\n`;
  await writePicture([before, base64, end], call);
}

async function writeDocument(
  pictures: readonly Picture[],
  call: Call,
): Promise<void> {
  const about = pictures[0]?.about ?? {};
  const created = secondsOf(about, call);
  let before = `{"created":${created},"data":[{"b64_json":"`;
  for (const { base64, data } of pictures) {
    const revised = json.textOf(data.revised_prompt);
    const prompt = `,"revised_prompt":${JSON.stringify(revised)}`;
    const after = `"${revised === "" ? "" : prompt}}`;
    await writePicture([before, base64, after], call);
    before = `,{"b64_json":"`;
  }
  const rest: json.JsonObject = {};
  for (const [name] of ABOUT) {
    rest[name] = json.textOf(about[name]) || undefined;
  }
  if (json.isJsonObject(about.usage)) rest.usage = about.usage;
  const tail = JSON.stringify(rest).slice(1);
  await call.answer.write(tail === "}" ? "]}" : `],${tail}`);
}

/** When it was made in Unix seconds, by default when it was requested. */
function secondsOf(
  { created, created_at }: json.JsonObject,
  { answer }: Call,
): number {
  const stated = created_at ?? created;
  const isTime = typeof stated === "number" && Number.isSafeInteger(stated);
  return isTime ? stated : answer.call.created;
}
