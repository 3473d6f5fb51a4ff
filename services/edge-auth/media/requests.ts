/**
 * Reads requests for media: checks what governs them (model, number, length, stream)
 * and the bounds of their models, and keeps the rest for the model server as it came.
 * Each function throws an `ApiError` for the first fault.
 */
import {
  MEDIA_LIMITS,
  UPLOAD_LIMITS,
  VIDEO_LIMITS,
} from "@gateway/shared/limits";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { type Fields, formFieldsOf } from "@gateway/shared/openai/form_fields";
import * as media from "@gateway/shared/openai/media";
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { z } from "zod";
import {
  parseRequest,
  requireAtMost,
  requireCharacters,
} from "../requests/body/parse_request.ts";
import { requirePassable } from "./passable.ts";

/** The size of one file, in bytes, of models that do not state one. */
export const FILE_BYTES_MAX = {
  image: UPLOAD_LIMITS.imageBytesMax,
  recording: UPLOAD_LIMITS.audioBytesMax,
  reference: VIDEO_LIMITS.referenceBytesMax,
} as const;

/** How the bodies of an endpoint are read. */
interface Reading<Body extends { model: string }> {
  readonly schema: z.ZodType<Body>;
  readonly kind: ModelKind;
  /** The names of the fields that the API has. */
  readonly names: ReadonlySet<string>;
}

interface Read<Body> {
  readonly body: Body;
  /** All members but the model, in the order in which they came. */
  readonly fields: Fields;
  readonly model: ModelConfig;
}

function readingOf<Body extends { model: string }>(
  kind: ModelKind,
  schema: z.ZodType<Body>,
  { shape }: { shape: object },
): Reading<Body> {
  return { kind, schema, names: new Set(Object.keys(shape)) };
}

const SPEECH = readingOf("speech", media.speechSchema, media.speechBody);
const IMAGE = readingOf("image", media.imageSchema, media.imageBody);
const EDIT = readingOf("image", media.imageEditSchema, media.imageEditBody);
const EDIT_FORM = readingOf(
  "image",
  media.imageEditFormSchema,
  media.imageEditForm,
);
const TRANSCRIPTION = readingOf(
  "transcription",
  media.transcriptionSchema,
  media.transcriptionForm,
);
const VIDEO = readingOf("video", media.videoRequestSchema, media.videoBody);

function read<Body extends { model: string }>(
  value: unknown,
  { schema, kind, names }: Reading<Body>,
  models: Catalog,
): Read<Body> {
  const { request: body, model } = parseRequest(value, {
    schema,
    kind,
    models,
  });
  const fields = fieldsIn(value, body);
  requirePassable(fields, names, model);
  return { body, fields, model };
}

/** The members that the client has sent, with the values that were read. */
function fieldsIn(value: unknown, body: object): Fields {
  const values = new Map<string, unknown>(Object.entries(body));
  const names = Object.keys(isJsonObject(value) ? value : {})
    .map((name) => name.toWellFormed())
    .filter((name) => name !== "model" && values.has(name));
  return Object.fromEntries(names.map((name) => [name, values.get(name)]));
}

function without(fields: Fields, ...names: readonly string[]): Fields {
  const entries = Object.entries(fields);
  return Object.fromEntries(entries.filter(([name]) => !names.includes(name)));
}

/** The fields of a form that have a value: an empty one is absent. */
function withoutEmpty(form: unknown): unknown {
  if (!isJsonObject(form)) return form;
  const fields: [string, unknown][] = [];
  for (const [name, value] of Object.entries(form)) {
    const values = [value].flat().filter((each) => each !== "");
    if (values.length > 0) {
      fields.push([name, Array.isArray(value) ? values : value]);
    }
  }
  return Object.fromEntries(fields);
}

/** Reads the parsed body of `POST /v1/audio/speech`. */
export function readSpeech(
  value: unknown,
  models: Catalog,
): media.SpeechRequest {
  const { body, fields, model } = read(value, SPEECH, models);
  const { input, instructions = "", stream_format: streamFormat } = body;
  const most = model.input_characters ?? MEDIA_LIMITS.speechCharsMax;
  requireCharacters("input", input, most);
  requireCharacters("instructions", instructions, most);
  const rest = without(fields, "input", "response_format");
  const isNamed = streamFormat === "sse" || streamFormat === "audio";
  return {
    kind: "speech",
    model: model.id,
    stream: streamFormat === "sse",
    input,
    format: body.response_format,
    fields: isNamed ? without(rest, "stream_format") : rest,
  };
}

/** Reads the parsed body of `POST /v1/images/generations`. */
export function readImage(value: unknown, models: Catalog): media.ImageRequest {
  return imageOf(read(value, IMAGE, models), "generate");
}

/**
 * Reads the fields of a form of `POST /v1/images/edits`, whose files are the images.
 */
export function readImageEditForm(
  value: unknown,
  models: Catalog,
): media.ImageRequest {
  return imageOf(read(withoutEmpty(value), EDIT_FORM, models), "edit");
}

/** Reads the parsed body of `POST /v1/images/edits`. */
export function readImageEdit(
  value: unknown,
  models: Catalog,
): media.ImageRequest {
  const edit = read(value, EDIT, models);
  const request = imageOf(edit, "edit");
  const images = edit.body.images.map(({ image_url: url }) => url);
  const mask = edit.body.mask?.image_url;
  // A form cannot name an address: then the server gets JSON.
  if (![...images, mask ?? "data:"].every(isDataUrl)) return request;
  const fields = formFieldsOf(without(request.fields, "images", "mask"));
  const files = mask === undefined ? { images } : { images, mask };
  return { ...request, fields, ...files };
}

const isDataUrl = (text: string) => /^data:/i.test(text);

function imageOf(
  { body, fields, model }: Read<z.output<typeof media.imageSchema>>,
  task: media.ImageRequest["task"],
): media.ImageRequest {
  const { prompt, n, response_format: format, stream } = body;
  const promptMax = model.prompt_characters ?? MEDIA_LIMITS.promptCharsMax;
  const imagesMax = model.images ?? MEDIA_LIMITS.imagesMax;
  requireCharacters("prompt", prompt, promptMax);
  requireAtMost("n", n, imagesMax);
  // Where a model makes an image in layers, each layer counts as an image.
  const layers = Math.max(1, Math.floor(Number(fields.layers)) || 1);
  requireAtMost("layers", n * layers, imagesMax);
  return {
    kind: "image",
    task,
    model: model.id,
    stream,
    prompt,
    count: n * layers,
    format,
    fields: without(fields, "prompt", "response_format", "stream"),
  };
}

/**
 * Reads the fields of a form of `POST /v1/audio/transcriptions`, or with the task
 * `translate`, of `/translations`.
 */
export function readTranscription(
  value: unknown,
  models: Catalog,
  task: media.TranscriptionRequest["task"],
): media.TranscriptionRequest {
  const { body, fields, model } = read(
    withoutEmpty(value),
    TRANSCRIPTION,
    models,
  );
  return {
    kind: "transcription",
    task,
    model: model.id,
    stream: body.stream,
    format: body.response_format,
    fields: without(fields, "response_format", "stream"),
  };
}

/** Reads the parsed body of `POST /v1/videos`. */
export function readVideo(
  value: unknown,
  models: Catalog,
): media.VideoCreation {
  const video = videoOf(read(value, VIDEO, models));
  const { input_reference: reference } = video.fields;
  const url = isJsonObject(reference) ? reference.image_url : reference;
  const isFile = typeof url === "string" && isDataUrl(url);
  // A form cannot name an address: then the server gets JSON.
  if (!isFile && isJsonObject(reference)) return video;
  const rest = isFile ? without(video.fields, "input_reference") : video.fields;
  const fields = formFieldsOf(rest);
  return isFile ? { ...video, fields, reference: url } : { ...video, fields };
}

/** Reads the fields of a form of `POST /v1/videos`. */
export function readVideoForm(
  value: unknown,
  models: Catalog,
): media.VideoCreation {
  return videoOf(read(withoutEmpty(value), VIDEO, models));
}

function videoOf(
  { body, fields, model }: Read<z.output<typeof media.videoRequestSchema>>,
): media.VideoCreation {
  const { prompt, size } = body;
  const promptMax = model.prompt_characters ?? MEDIA_LIMITS.promptCharsMax;
  requireCharacters("prompt", prompt, promptMax);
  return {
    kind: "video",
    action: "create",
    stream: false,
    model: model.id,
    prompt,
    ...lengthOf(body.seconds, fields),
    size: typeof size === "string" ? size : undefined,
    fields: without(fields, "prompt"),
  };
}

/** The rate of a server that gets frames without a rate, such as vLLM-Omni. */
const FRAMES_PER_SECOND = 24;

/** The length of a video, also by other names, of which a server may know any. */
function lengthOf(
  ownSeconds: string | undefined,
  fields: Fields,
): Pick<media.VideoCreation, "seconds" | "secondsLeast"> {
  const { video_params: params } = fields;
  const all: Fields = isJsonObject(params) ? { ...params, ...fields } : fields;
  const numberOf = (name: string) => Number(all[name] ?? NaN) || 0;
  const rate = numberOf("fps") || FRAMES_PER_SECOND;
  const byFrames = Math.ceil(numberOf("num_frames") / rate);
  const other = Math.max(numberOf("duration"), byFrames, 0);
  const secondsLeast = other < MEDIA_LIMITS.secondsMax ? other : 0;
  const isLonger = secondsLeast > Number(ownSeconds ?? 0);
  return {
    seconds: isLonger ? String(secondsLeast) : ownSeconds,
    secondsLeast,
  };
}
