/** The endpoints that media workers run: what is particular about each. */
import {
  type ImageRequest,
  imageRequestSchema,
  type SpeechRequest,
  speechRequestSchema,
  type TranscriptionRequest,
  transcriptionRequestSchema,
} from "@gateway/shared/openai/media";
import { UPLOAD_LIMITS } from "@gateway/shared/limits";
import { fieldError } from "@gateway/shared/openai/error";
import { costsOnly } from "../limits/cost.ts";
import { parseRequest, requireCleanJson } from "../requests/parse_request.ts";
import type { Endpoint } from "../requests/run_request.ts";
import type { UploadEndpoint } from "../requests/run_upload.ts";
import { MediaAnswer } from "./answer.ts";

/** `POST /v1/audio/speech`. Costs the characters of the input. */
export const SPEECH_ENDPOINT: Endpoint<SpeechRequest> = {
  kind: "speech",
  parse(given, models) {
    const schema = speechRequestSchema;
    const { request } = parseRequest(given, { schema, kind: "speech", models });
    requireCleanJson(request);
    return request;
  },
  estimate: () => costsOnly("characters"),
  answer: ({ stream }, options) => new MediaAnswer(options, () => stream),
};

/** `POST /v1/images/generations`. Costs pictures. */
export const IMAGE_ENDPOINT: Endpoint<ImageRequest> = {
  kind: "image",
  parse(given, models) {
    const schema = imageRequestSchema;
    const { request } = parseRequest(given, { schema, kind: "image", models });
    requireCleanJson(request);
    return request;
  },
  estimate: () => costsOnly("images"),
  answer: ({ stream }, options) => new MediaAnswer(options, () => stream),
};

/** `POST /v1/audio/transcriptions` and `/v1/audio/translations`. Costs seconds of the recording. */
function transcriptionEndpoint(
  task: TranscriptionRequest["task"],
): UploadEndpoint<TranscriptionRequest> {
  const schema = transcriptionRequestSchema(task);
  return {
    kind: "transcription",
    form: {
      fileFields: ["file"],
      fileBytesMax: UPLOAD_LIMITS.audioBytesMax,
    },
    parse({ fields, files }, models) {
      const kind = "transcription";
      const { request } = parseRequest(fields, { schema, kind, models });
      requireCleanJson(request);
      if (files.length === 1) return request;
      const message = files.length === 0
        ? "Missing required parameter: 'file'."
        : "Invalid 'file': expected one file.";
      const code = files.length === 0
        ? "missing_required_parameter"
        : "invalid_value";
      throw fieldError(code, "file", message);
    },
    estimate: () => costsOnly("audioSeconds"),
    answer: (options, isStream) => new MediaAnswer(options, isStream),
  };
}

export const TRANSCRIPTION_ENDPOINT = transcriptionEndpoint("transcribe");
export const TRANSLATION_ENDPOINT = transcriptionEndpoint("translate");
