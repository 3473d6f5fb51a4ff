/**
 * Requests for images, speech and transcriptions: the schemas of their bodies, and the
 * forms that travel inside the gateway. Field names, bounds and defaults are those of
 * OpenAI's API specification of August 2026. Null means absent, unknown fields are
 * dropped.
 */
import * as z from "zod";
import { MEDIA_LIMITS as LIMITS, REQUEST_LIMITS } from "../limits.ts";
import {
  decimal,
  integer,
  listOf,
  nameText,
  nullable,
  plainText,
  readAs,
} from "./fields.ts";
import type { VideoRequest } from "./video.ts";

export const speechFormat = z.enum(
  ["mp3", "opus", "aac", "flac", "wav", "pcm"],
);

export const model = nameText.max(REQUEST_LIMITS.modelCharsMax)
  .describe("A model that `GET /v1/models` lists.");
const DATA_URL = /^data:image\/(png|jpe?g|webp);base64,/;
const label = plainText.min(1).max(LIMITS.labelCharsMax);
/** Text with at least one character to speak or draw. */
export const mediaText = (charsMax: number) =>
  z.string().min(1).max(charsMax).refine((value) => value.trim() !== "", {
    error: "text that is not blank",
  });

export const speechBody = z.object({
  model,
  input: mediaText(LIMITS.speechCharsMax).describe("The text to speak."),
  voice: z.preprocess(
    (voice) =>
      typeof voice === "object" && voice !== null && "id" in voice
        ? voice.id
        : voice,
    label,
  ).describe("A voice of the model, by name, or as an object with its `id`."),
  instructions: z.string().max(LIMITS.speechCharsMax).exactOptional()
    .describe("How to speak, for models that follow instructions."),
  response_format: speechFormat.default("mp3"),
  speed: decimal(...LIMITS.speed).exactOptional(),
  stream_format: z.enum(["audio", "sse"]).default("audio").describe(
    "`sse`: events with pieces of the audio in base64. Otherwise the body is the audio itself, sent while it is made.",
  ),
}).meta({ id: "SpeechRequest" });

/** Checks the parsed body of `POST /v1/audio/speech` and converts it. */
export const speechRequestSchema = nullable(speechBody).transform(
  ({ stream_format, ...rest }) => ({
    ...{ ...rest, kind: "speech" as const },
    /** As server-sent events. */
    stream: stream_format === "sse",
  }),
);
export type SpeechRequest = z.output<typeof speechRequestSchema>;

const numberIn = (schema: z.ZodNumber) =>
  readAs(
    schema,
    (value) =>
      typeof value === "string" && value.trim() !== "" ? Number(value) : value,
  );
const formBoolean = readAs(
  z.boolean(),
  (value) => value === "true" || (value === "false" ? false : value),
);

const imageBody = z.object({
  model,
  prompt: mediaText(LIMITS.promptCharsMax).describe("What to draw."),
  n: integer(1, LIMITS.imagesMax).default(1),
  size: z.string().regex(/^(auto|[1-9]\d{1,4}x[1-9]\d{1,4})$/, {
    error: "'auto', or width and height of 2 to 5 digits, such as '1024x1024'",
  }).exactOptional(),
  quality: label.exactOptional(),
  background: z.enum(["transparent", "opaque", "auto"]).exactOptional(),
  output_format: z.enum(["png", "jpeg", "webp"]).exactOptional(),
  output_compression: integer(0, LIMITS.compressionMax).exactOptional(),
  moderation: z.enum(["low", "auto"]).exactOptional(),
  style: z.enum(["vivid", "natural"]).exactOptional(),
  response_format: z.literal("b64_json").exactOptional().describe(
    "Images are always returned in base64: the gateway stores none.",
  ),
  user: plainText.max(LIMITS.labelCharsMax).exactOptional(),
  stream: z.boolean().default(false),
  partial_images: integer(0, LIMITS.partialImagesMax).exactOptional()
    .describe("How many partial images to send before the final one."),
}).meta({ id: "ImageRequest" });

/** An image within JSON. */
export const pictureReference = nullable(z.object({
  image_url: z.string().max(LIMITS.dataUrlCharsMax).regex(DATA_URL, {
    error: "a data: URL of a PNG, JPEG or WebP file in base64",
  }).describe("A `data:` URL: the gateway fetches no images."),
}));
export const imageEditForm = imageBody.omit({ style: true }).extend({
  n: numberIn(imageBody.shape.n.unwrap()).default(1),
  output_compression: numberIn(integer(0, LIMITS.compressionMax))
    .exactOptional(),
  input_fidelity: z.enum(["low", "high"]).exactOptional(),
  stream: formBoolean.default(false),
  partial_images: numberIn(integer(0, LIMITS.partialImagesMax))
    .exactOptional(),
}).meta({ id: "ImageEditForm" });
const imageEditBody = imageEditForm.extend({
  images: listOf(pictureReference, LIMITS.editedImagesMax, 1)
    .describe("The images to edit."),
  mask: pictureReference.exactOptional(),
}).meta({ id: "ImageEditRequest" });

/** A request of `POST /v1/images/generations` or, with `task` "edit", `/v1/images/edits`. */
export type ImageRequest =
  & Omit<z.output<typeof imageBody>, "response_format">
  & Partial<
    Pick<z.output<typeof imageEditBody>, "input_fidelity" | "images" | "mask">
  >
  & { kind: "image"; task: "generate" | "edit" };

/** The rules about several members of a request for images. */
function streamRules(
  { stream, n, partial_images = 0 }: Pick<
    ImageRequest,
    "stream" | "n" | "partial_images"
  >,
  { addIssue }: z.RefinementCtx,
): void {
  const add = (path: string, message: string) =>
    addIssue({ code: "custom", path: [path], message });
  if (!stream && partial_images > 0) {
    add("partial_images", "'partial_images' needs 'stream'.");
  }
  if (stream && n > 1) add("n", "A stream has one image: 'n' must be 1.");
}

/** Without `response_format`, which is always the same. */
const imageRequest = <T extends { response_format?: string }>(
  { response_format: _always, ...rest }: T,
  task: ImageRequest["task"],
) => ({ ...rest, kind: "image" as const, task });

/** Checks the parsed body of `POST /v1/images/generations` and converts it. */
export const imageRequestSchema = nullable(imageBody.superRefine(streamRules))
  .transform((body): ImageRequest => imageRequest(body, "generate"));
/** Checks the fields of a form of `POST /v1/images/edits` and converts them. */
export const imageEditFormSchema = imageEditForm.superRefine(streamRules)
  .transform((form): ImageRequest => imageRequest(form, "edit"));
/** Checks the parsed body of `POST /v1/images/edits` and converts it. */
export const imageEditSchema = nullable(imageEditBody.superRefine(streamRules))
  .transform((body): ImageRequest => imageRequest(body, "edit"));

/** `name[]` may be sent once or several times. */
const formList = <T extends z.ZodType>(element: T) =>
  readAs(
    z.array(element).max(LIMITS.formListMax),
    (value) => typeof value === "string" ? [value] : value,
  );

export const transcriptionFormat = z.enum(
  ["json", "text", "srt", "verbose_json", "vtt"],
);

export const transcriptionForm = z.object({
  model,
  language: label.exactOptional().describe(
    "The language of the recording, such as `en`.",
  ),
  prompt: z.string().max(LIMITS.promptCharsMax).exactOptional()
    .describe("Text that precedes the recording, or names that occur in it."),
  response_format: transcriptionFormat.default("json"),
  temperature: numberIn(decimal(0, 1)).exactOptional(),
  timestamp_granularities: formList(z.enum(["word", "segment"]))
    .exactOptional(),
  include: formList(label).exactOptional(),
  stream: formBoolean.default(false),
}).meta({ id: "TranscriptionRequest" });

/** Checks the fields of a form of `POST /v1/audio/transcriptions`, or of `/v1/audio/translations`, and converts them. */
export const transcriptionRequestSchema = (task: "transcribe" | "translate") =>
  transcriptionForm
    .transform((form) => ({ ...form, kind: "transcription" as const, task }));
export type TranscriptionRequest = z.output<
  ReturnType<typeof transcriptionRequestSchema>
>;

/** A request that a media worker runs. */
export type MediaRequest =
  | SpeechRequest
  | ImageRequest
  | TranscriptionRequest
  | VideoRequest;
