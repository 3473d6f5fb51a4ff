/** The endpoints that media workers run, and their answers. */
import * as wire from "@gateway/shared/openai/media";
import { MEDIA_LIMITS, UPLOAD_LIMITS } from "@gateway/shared/limits";
import type { JobRequest } from "@gateway/shared/bus/job";
import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { ApiError, fieldError } from "@gateway/shared/openai/error";
import type { RunJob } from "../dispatch/outcome.ts";
import { BYTES_HEADERS, EVENT_STREAM_HEADERS } from "../http/responses.ts";
import { costsOnly } from "../limits/cost.ts";
import { type AnswerOptions, StreamedAnswer } from "../requests/answer.ts";
import { parseRequest, requireCleanJson } from "../requests/parse_request.ts";
import type { Endpoint } from "../requests/run_request.ts";
import type { UploadEndpoint } from "../requests/run_upload.ts";
import type * as z from "zod";

/** Checks a body, or the fields of a form, and converts it. */
const parser =
  <Request extends JobRequest>(kind: ModelKind, schema: z.ZodType<Request>) =>
  (given: unknown, models: Catalog): Request => {
    const { request } = parseRequest(given, { schema, kind, models });
    requireCleanJson(request);
    return request;
  };

const toMedia: Endpoint<JobRequest>["answer"] = (options, job) =>
  new MediaAnswer(options, job);

/** `POST /v1/audio/speech`. Costs the characters of the input. */
export const SPEECH: Endpoint<wire.SpeechRequest> = {
  kind: "speech",
  parse: parser("speech", wire.speechRequestSchema),
  estimate: ({ input }) => costsOnly("characters", [...input].length),
  answer: toMedia,
};

/** `POST /v1/images/generations`. Costs images. */
export const IMAGE: Endpoint<wire.ImageRequest> = {
  kind: "image",
  parse: parser("image", wire.imageRequestSchema),
  estimate: ({ n }) => costsOnly("images", n),
  answer: toMedia,
};

/** `POST /v1/images/edits` with JSON. */
export const IMAGE_EDIT: Endpoint<wire.ImageRequest> = {
  ...IMAGE,
  parse: parser("image", wire.imageEditSchema),
};

/** `POST /v1/images/edits` with a form. */
export const IMAGE_EDIT_UPLOAD: UploadEndpoint<wire.ImageRequest> = {
  ...IMAGE,
  form: {
    fileFields: ["image", "mask"],
    fileBytesMax: UPLOAD_LIMITS.imageBytesMax,
  },
  parse(fields, models, files) {
    const request = parser("image", wire.imageEditFormSchema)(fields, models);
    requireFiles(files, "image", [1, MEDIA_LIMITS.editedImagesMax]);
    requireFiles(files, "mask", [0, 1]);
    return request;
  },
};

/** `POST /v1/audio/transcriptions` and `/v1/audio/translations`. Costs seconds of the recording. */
function transcriptionEndpoint(
  task: wire.TranscriptionRequest["task"],
): UploadEndpoint<wire.TranscriptionRequest> {
  const parse = parser("transcription", wire.transcriptionRequestSchema(task));
  return {
    kind: "transcription",
    form: {
      fileFields: ["file"],
      fileBytesMax: UPLOAD_LIMITS.audioBytesMax,
    },
    parse(fields, models, files) {
      const request = parse(fields, models);
      requireFiles(files, "file", [1, 1]);
      return request;
    },
    estimate: () => costsOnly("audioSeconds"),
    answer: toMedia,
  };
}

export const TRANSCRIPTION = transcriptionEndpoint("transcribe");
export const TRANSLATION = transcriptionEndpoint("translate");

/** Refuses a form with fewer or more files of this name. */
export function requireFiles(
  files: readonly { field: string }[],
  name: string,
  [min, max]: readonly [number, number],
): void {
  const { length } = files.filter(({ field }) => field === name);
  if (length < min) {
    const message = `Missing required parameter: '${name}'.`;
    throw fieldError("missing_required_parameter", name, message);
  }
  if (length <= max) return;
  const most = max === 1 ? "one file" : `at most ${max} files`;
  const message = `Invalid '${name}': expected ${most}.`;
  throw fieldError("invalid_value", name, message);
}

const LINE_END = 0x0a;

/**
 * An answer as its model server sends it: audio, or a document with images. The first
 * byte opens the 200. A failure after that cuts the connection, which every client
 * treats as an error; in an event stream it is an event.
 */
export class MediaAnswer extends StreamedAnswer {
  protected override readonly errorHead = "event: error\n";
  readonly #job: Pick<RunJob, "request">;
  #head = new MediaHeadReader();
  /** The last byte written ended an event, so that a comment may follow. */
  #hasEndedEvent = true;

  /** The request of an upload changes when that has ended. */
  constructor(options: AnswerOptions, job: Pick<RunJob, "request">) {
    super(options);
    this.#job = job;
  }

  protected override get isBetweenEvents(): boolean {
    return this.#job.request.stream && this.#hasEndedEvent;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    if (this.hasStarted) return this.#send(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return this.run.delivered(sequence);
    if (read === "invalid") return this.run.cancel("violation", unreadable());
    this.hasStarted = true;
    const { content_type, headers, status } = read.head;
    const ofFile = { "content-type": content_type, ...headers };
    const isStream = this.#job.request.stream;
    this.open(
      isStream ? EVENT_STREAM_HEADERS : { ...BYTES_HEADERS, ...ofFile },
      status,
    );
    this.#send(read.rest, sequence);
  }

  onRestart(): void {
    this.#head = new MediaHeadReader();
  }

  #send(bytes: Uint8Array, sequence: number): void {
    if (bytes.length > 0) {
      this.#hasEndedEvent = bytes.at(-1) === LINE_END &&
        (bytes.at(-2) ?? LINE_END) === LINE_END;
    }
    this.write(bytes, sequence);
  }
}

/** The error for an answer of a worker that is empty or not what it should be. */
export const unreadable = () =>
  new ApiError("upstream_invalid", "The model server sent an invalid answer.");
