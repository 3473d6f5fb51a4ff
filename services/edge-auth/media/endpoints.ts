/** The endpoints that media workers run, and their answers. */
import {
  imageEditFormSchema,
  imageEditSchema,
  type ImageRequest,
  imageRequestSchema,
  speechRequestSchema,
  type TranscriptionRequest,
  transcriptionRequestSchema,
} from "@gateway/shared/openai/media";
import { MEDIA_LIMITS, UPLOAD_LIMITS } from "@gateway/shared/limits";
import type { JobRequest } from "@gateway/shared/bus/job";
import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import { ApiError } from "@gateway/shared/openai/error";
import { BYTES_HEADERS, EVENT_STREAM_HEADERS } from "../http/responses.ts";
import { costsOnly } from "../limits/cost.ts";
import { type AnswerOptions, StreamedAnswer } from "../requests/answer.ts";
import { parserOf } from "../requests/parse_request.ts";
import type { Endpoint, UploadEndpoint } from "../requests/endpoint.ts";
import type * as z from "zod";

/** Passes on what the model server makes. */
export const answerAsMade: Endpoint<JobRequest>["answer"] =
  ({ stream }) => (options) => new MediaAnswer(options, stream);

function endpoint<Request extends JobRequest>(
  schema: z.ZodType<Request>,
  { kind, estimate }: Pick<Endpoint<Request>, "kind" | "estimate">,
): Endpoint<Request> {
  const parse = parserOf(schema, kind);
  return { kind, parse, estimate, answer: answerAsMade };
}

/** `POST /v1/audio/speech`, which costs the characters of its text. */
export const SPEECH = endpoint(speechRequestSchema, {
  kind: "speech",
  estimate: ({ input }) => costsOnly("characters", [...input].length),
});

const IMAGES: Pick<Endpoint<ImageRequest>, "kind" | "estimate"> = {
  kind: "image",
  estimate: ({ n }) => costsOnly("images", n),
};
/** `POST /v1/images/generations`, which costs `n` images. */
export const IMAGE = endpoint(imageRequestSchema, IMAGES);
/** `POST /v1/images/edits` with JSON. */
export const IMAGE_EDIT = endpoint(imageEditSchema, IMAGES);
/** `POST /v1/images/edits` with a form. */
export const IMAGE_EDIT_UPLOAD: UploadEndpoint<ImageRequest> = {
  ...endpoint(imageEditFormSchema, IMAGES),
  form: {
    files: { image: [1, MEDIA_LIMITS.editedImagesMax], mask: [0, 1] },
    fileBytesMax: UPLOAD_LIMITS.imageBytesMax,
  },
  least: costsOnly("images", 1),
};

const fromRecording = (
  task: TranscriptionRequest["task"],
): UploadEndpoint<TranscriptionRequest> => ({
  ...endpoint(transcriptionRequestSchema(task), {
    kind: "transcription",
    // The length of the recording is not known before it has been read.
    estimate: () => costsOnly("audioSeconds"),
  }),
  form: { files: { file: [1, 1] }, fileBytesMax: UPLOAD_LIMITS.audioBytesMax },
  least: costsOnly("audioSeconds"),
});
/** `POST /v1/audio/transcriptions`, which costs the seconds of the recording. */
export const TRANSCRIPTION = fromRecording("transcribe");
/** `POST /v1/audio/translations`, which costs the same. */
export const TRANSLATION = fromRecording("translate");

const LINE_END = 0x0a;

/**
 * An answer as its model server sends it. A failure after its first byte is an event,
 * or cuts the connection.
 */
class MediaAnswer extends StreamedAnswer {
  protected override readonly errorHead = "event: error\n";
  #head = new MediaHeadReader();
  /** The last byte written ended an event, so that a comment may follow. */
  #hasEndedEvent = true;

  constructor(options: AnswerOptions, readonly isStream: boolean) {
    super(options);
  }

  protected override get isBetweenEvents(): boolean {
    return this.isStream && this.#hasEndedEvent;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    if (this.hasStarted) return this.#send(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return this.run.delivered(sequence);
    if (read === "invalid") return this.run.cancel("violation", unreadable());
    this.start();
    const { content_type, headers, status } = read.head;
    const ofFile = { "content-type": content_type, ...headers };
    this.open(
      this.isStream ? EVENT_STREAM_HEADERS : { ...BYTES_HEADERS, ...ofFile },
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
