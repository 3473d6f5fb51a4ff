/**
 * Images, speech, transcriptions and videos: the schemas of requests and of answers
 * about videos, and the forms that travel inside the gateway. Field names, bounds and
 * defaults are those of OpenAI's API specification of August 2026. Null means absent,
 * unknown fields are dropped.
 */
import * as z from "zod";
import { MEDIA_LIMITS as LIMITS } from "../limits.ts";
import {
  decimal,
  integer,
  listOf,
  model,
  nullable,
  plainText,
  readAs,
} from "./fields.ts";

/** The formats of speech. OpenAI streams each of them as raw bytes. */
export const speechFormat = z.enum(
  ["mp3", "opus", "aac", "flac", "wav", "pcm"],
);

const DATA_URL = /^data:image\/(png|jpe?g|webp);base64,/;
const label = plainText.min(1).max(LIMITS.labelCharsMax);
/** Text with at least one character to speak or draw. */
const mediaText = (charsMax: number) =>
  z.string().min(1).max(charsMax)
    .regex(/\S/, { error: "text that is not blank" });

/** The body of `POST /v1/audio/speech` before it is converted. */
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
    ...rest,
    kind: "speech" as const,
    /** As server-sent events. */
    stream: stream_format === "sse",
  }),
);

/** A request for speech, as a media worker runs it. */
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

const pictureReference = nullable(z.object({
  image_url: z.string().max(LIMITS.dataUrlCharsMax).regex(DATA_URL, {
    error: "a data: URL of a PNG, JPEG or WebP file in base64",
  }).describe("A `data:` URL: the gateway fetches no images."),
}));

/** The fields of a form of `POST /v1/images/edits`, without its files. */
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

/**
 * A request of `POST /v1/images/generations` or, with `task` "edit",
 * `/v1/images/edits`.
 */
export type ImageRequest =
  & Omit<z.output<typeof imageBody>, "response_format">
  & Partial<
    Pick<z.output<typeof imageEditBody>, "input_fidelity" | "images" | "mask">
  >
  & { kind: "image"; task: "generate" | "edit" };

/** The rules about several members of a request for images. */
function streamRules(
  { stream, n, partial_images = 0 }: z.output<typeof imageBody>,
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

/** For `POST /v1/images/generations`, with JSON. */
export const imageRequestSchema = nullable(imageBody.superRefine(streamRules))
  .transform((body): ImageRequest => imageRequest(body, "generate"));

/** For `POST /v1/images/edits` with a form, whose files are the images. */
export const imageEditFormSchema = imageEditForm.superRefine(streamRules)
  .transform((form): ImageRequest => imageRequest(form, "edit"));

/** For `POST /v1/images/edits` with JSON, whose images are `data:` URLs. */
export const imageEditSchema = nullable(imageEditBody.superRefine(streamRules))
  .transform((body): ImageRequest => imageRequest(body, "edit"));

/** `name[]` may be sent once or several times. */
const formList = <T extends z.ZodType>(element: T) =>
  readAs(
    z.array(element).max(LIMITS.formListMax),
    (value) => typeof value === "string" ? [value] : value,
  );

/** The formats in which the text of a recording is returned. */
export const transcriptionFormat = z.enum(
  ["json", "text", "srt", "verbose_json", "vtt"],
);

/**
 * The fields of a form of `POST /v1/audio/transcriptions` or `/translations`, without
 * its file.
 */
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

/**
 * Checks the fields of such a form and converts them. `translate`: the text is English,
 * whatever the language of the recording.
 */
export const transcriptionRequestSchema = (task: "transcribe" | "translate") =>
  transcriptionForm
    .transform((form) => ({ ...form, kind: "transcription" as const, task }));

/** A request for the text of a recording, as a media worker runs it. */
export type TranscriptionRequest = z.output<
  ReturnType<typeof transcriptionRequestSchema>
>;

const seconds = readAs(
  z.string().regex(/^[1-9]\d{0,2}$/, {
    error: "a whole number of seconds, such as '4'",
  }),
  (value) => typeof value === "number" ? String(value) : value,
);

/** A video is a job at a model server, which clients poll until it has ended. */
export const videoBody = z.object({
  model,
  prompt: mediaText(LIMITS.promptCharsMax).describe("What the video shows."),
  seconds: seconds.exactOptional().describe(
    "The length of the video in seconds, such as `4`. By default, the model decides.",
  ),
  size: z.string().regex(/^[1-9]\d{1,4}x[1-9]\d{1,4}$/, {
    error: "a size such as '1280x720'",
  }).exactOptional(),
  input_reference: pictureReference.exactOptional().describe(
    "The image that the video starts with; in a form, a file.",
  ),
}).meta({ id: "VideoRequest" });

/** Checks the parsed body of `POST /v1/videos` and converts it. */
export const videoRequestSchema = nullable(videoBody).transform(
  ({ input_reference, ...rest }) => ({
    ...rest,
    ...(input_reference && { reference: input_reference.image_url }),
    kind: "video" as const,
    action: "create" as const,
    stream: false as const,
  }),
);

/** The body of `POST /v1/videos/{id}/remix`: only the new prompt. */
export const videoRemixSchema = nullable(
  videoBody.pick({ prompt: true }).meta({ id: "VideoRemixRequest" }),
);

/** The files of a finished video. */
export const VIDEO_VARIANTS = ["video", "thumbnail", "spritesheet"] as const;

/** What a model server can be asked about a job. */
interface ForVideo {
  kind: "video";
  model: string;
  stream: false;
  /** The backend, and its name for the job. */
  backend: string;
  id: string;
}

/** A request about videos, as a media worker runs it. */
export type VideoRequest =
  | z.output<typeof videoRequestSchema>
  | ForVideo & { action: "retrieve" | "delete" }
  | ForVideo & { action: "remix"; prompt: string }
  | ForVideo & {
    action: "content";
    variant: typeof VIDEO_VARIANTS[number];
    /** `Range` and `If-Range` of the client. */
    range: Readonly<Record<string, string>>;
  };

const status = z.enum(["queued", "in_progress", "completed", "failed"]);

/** How far a job is. The last two are final. */
export type VideoStatus = z.output<typeof status>;

const text = z.string().nullable();
const unixSeconds = z.int().min(0);
const state = {
  status,
  progress: z.int().min(0).max(100),
  completed_at: unixSeconds.nullable(),
  seconds: text,
  size: text,
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
};

/**
 * What a model server says of a job: the answer of a worker to every action but
 * `content`.
 */
export const engineVideoSchema = z.strictObject({
  ...state,
  /** The name of the backend, and its name for the job. */
  backend: z.string(),
  id: z.string(),
  expires_at: unixSeconds.nullable(),
});

/** What a model server says of a job. */
export type EngineVideo = z.output<typeof engineVideoSchema>;

/** A video, as clients see it. All members are always there. */
export const videoSchema = z.strictObject({
  id: z.string(),
  object: z.literal("video"),
  model: z.string(),
  ...state,
  prompt: text.describe(
    "In the answer to the request that started it; otherwise null: the gateway keeps no prompts.",
  ),
  created_at: unixSeconds,
  expires_at: unixSeconds.nullable(),
  remixed_from_video_id: text,
}).meta({ id: "Video" });

/** A video, as clients see it. */
export type Video = z.output<typeof videoSchema>;

/** Body of `GET /v1/videos`. */
export const videoListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(videoSchema),
  first_id: text,
  last_id: text,
  has_more: z.boolean(),
}).meta({ id: "VideoList" });

/** Body of `DELETE /v1/videos/{id}`. */
export const videoDeletedSchema = z.strictObject({
  id: z.string(),
  object: z.literal("video.deleted"),
  deleted: z.literal(true),
}).meta({ id: "VideoDeleted" });

/** Any request that a media worker runs; `kind` and `action` tell them apart. */
export type MediaRequest =
  | SpeechRequest
  | ImageRequest
  | TranscriptionRequest
  | VideoRequest;
