/** The endpoints that media workers run. */
import * as wire from "@gateway/shared/openai/media";
import { MEDIA_LIMITS, UPLOAD_LIMITS } from "@gateway/shared/limits";
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { fieldError } from "@gateway/shared/openai/error";
import { costsOnly } from "../limits/cost.ts";
import { parseRequest, requireCleanJson } from "../requests/parse_request.ts";
import type { Endpoint } from "../requests/run_request.ts";
import type { UploadEndpoint } from "../requests/run_upload.ts";
import type * as z from "zod";
import { MediaAnswer } from "./answer.ts";

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
