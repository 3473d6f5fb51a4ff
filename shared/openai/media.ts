/**
 * Images, speech, transcriptions and videos: the schemas of requests and of answers
 * about videos, and the forms that travel inside the gateway. A schema checks what the
 * gateway itself looks at. Everything else passes to the model server as it came; where
 * OpenAI's API specification of August 2026 has it, it is described.
 */
import { z } from "zod";
import { MEDIA_LIMITS as LIMITS } from "../limits.ts";
import {
  decimal,
  integer,
  listOf,
  model,
  nameText,
  nullable,
  readAs,
} from "./fields.ts";
import {
  anything,
  type Fields,
  flag,
  numeric,
  present,
} from "./form_fields.ts";

/** The formats of speech that OpenAI has. It streams each of them as raw bytes. */
export const speechFormat = z.enum(
  ["mp3", "opus", "aac", "flac", "wav", "pcm"],
);

/** Text with at least one character to speak or draw. */
const mediaText = z.string().min(1)
  .regex(/\S/, { error: "text that is not blank" });

/** The body of `POST /v1/audio/speech`. */
export const speechBody = z.looseObject({
  model,
  input: mediaText.describe(
    "The text to speak: at most 4,096 characters, unless the model has another bound.",
  ),
  voice: anything("string").describe(
    "A voice of the model, by name, or as an object with its `id`.",
  ),
  instructions: z.string().optional()
    .describe("How to speak, for models that follow instructions."),
  response_format: nameText.default("mp3").describe(
    "`mp3`, `opus`, `aac`, `flac`, `wav`, `pcm`, or what else the model server has.",
  ),
  speed: numeric(decimal(...LIMITS.speed)).optional(),
  stream_format: nameText.default("audio").describe(
    "`sse`: events with pieces of the audio in base64. Otherwise the body is the audio itself, sent while it is made.",
  ),
}).meta({ id: "SpeechRequest" });

/** Checks the parsed body of `POST /v1/audio/speech`. */
export const speechSchema = present(speechBody);

/** What all requests of media have besides what only the model server knows. */
interface ForServer {
  model: string;
  stream: boolean;
  /** Fields for the model server, as the client sent them. */
  fields: Fields;
}

/** A request for speech, as a media worker runs it. */
export interface SpeechRequest extends ForServer {
  kind: "speech";
  input: string;
  /** `response_format`. */
  format: string;
}

const ADDRESS = /^(data:image\/[\w.+-]+;base64,|https?:\/\/)/i;
const pictureReference = nullable(z.looseObject({
  image_url: z.string().max(LIMITS.dataUrlCharsMax).regex(ADDRESS, {
    error: "a data: URL of an image in base64",
  }).describe(
    "A `data:` URL of an image. Other addresses only if the model's server may fetch them.",
  ),
}));

/** The body of `POST /v1/images/generations`, and the fields that edits have, too. */
export const imageBody = z.looseObject({
  model,
  prompt: mediaText.describe(
    "What to draw: at most 32,000 characters, unless the model has another bound.",
  ),
  n: numeric(integer(1)).default(1)
    .describe("At most 10, unless the model has another bound."),
  size: anything("string").describe("Such as `1024x1024`, or `auto`."),
  quality: anything("string"),
  background: anything("string"),
  output_format: anything("string").describe("Such as `png`."),
  output_compression: anything("number"),
  moderation: anything("string"),
  style: anything("string"),
  response_format: nameText.default("b64_json").describe(
    "`url`: each image has a `data:` URL. Otherwise it is in base64: the gateway stores none.",
  ),
  user: anything("string"),
  stream: flag.default(false),
  partial_images: numeric(integer(0, LIMITS.partialImagesMax)).optional()
    .describe("How many partial images to send before the final one."),
}).meta({ id: "ImageRequest" });

/** The fields of a form of `POST /v1/images/edits`, without its files. */
export const imageEditForm = imageBody.extend({
  input_fidelity: anything("string"),
}).meta({ id: "ImageEditForm" });
/** The body of `POST /v1/images/edits`. */
export const imageEditBody = imageEditForm.extend({
  images: listOf(pictureReference, LIMITS.editedImagesMax, 1)
    .describe("The images to edit."),
  mask: pictureReference.optional(),
}).meta({ id: "ImageEditRequest" });

/** Checks the parsed body of `POST /v1/images/generations`. */
export const imageSchema = present(imageBody);
/**
 * Checks the fields of a form of `POST /v1/images/edits`, whose files are the images.
 */
export const imageEditFormSchema = present(imageEditForm);
/** Checks the parsed body of `POST /v1/images/edits`. */
export const imageEditSchema = present(imageEditBody);

/**
 * A request of `POST /v1/images/generations` or, with `task` "edit",
 * `/v1/images/edits`.
 */
export interface ImageRequest extends ForServer {
  kind: "image";
  task: "generate" | "edit";
  prompt: string;
  /** How many images it makes. */
  count: number;
  /** `response_format`. */
  format: string;
  /** `data:` URLs of a JSON body, which the model server gets as files. */
  images?: string[];
  mask?: string;
}

/** The formats of OpenAI's first model in which the text of a recording is returned. */
export const transcriptionFormat = z.enum(
  ["json", "text", "srt", "verbose_json", "vtt"],
);

/**
 * The fields of a form of `POST /v1/audio/transcriptions` or `/translations`, without
 * its file.
 */
export const transcriptionForm = z.looseObject({
  model,
  language: anything("string").describe(
    "The language of the recording, such as `en`.",
  ),
  prompt: anything("string")
    .describe("Text that precedes the recording, or names that occur in it."),
  response_format: nameText.default("json").describe(
    "`json`, `text`, `srt`, `verbose_json`, `vtt`, `diarized_json`, or what else the model server has.",
  ),
  temperature: anything("number"),
  timestamp_granularities: anything("string").describe(
    "`word` or `segment`; sent once or several times, as `timestamp_granularities[]`.",
  ),
  include: anything("string").describe(
    "Such as `logprobs`; sent once or several times, as `include[]`.",
  ),
  stream: flag.default(false),
}).meta({ id: "TranscriptionRequest" });

/** Checks the fields of such a form. */
export const transcriptionSchema = present(transcriptionForm);

/** A request for the text of a recording, as a media worker runs it. */
export interface TranscriptionRequest extends ForServer {
  kind: "transcription";
  /** `translate`: the text is English, whatever the language of the recording. */
  task: "transcribe" | "translate";
  /** `response_format`. */
  format: string;
}

const seconds = readAs(
  z.string().regex(/^(?=.*[1-9])\d{1,3}(\.\d{1,3})?$/, {
    error: "a number of seconds, such as '4'",
  }),
  (value) => typeof value === "number" ? String(value) : value,
);

/** A video is a job at a model server, which clients poll until it has ended. */
export const videoBody = z.looseObject({
  model,
  prompt: mediaText.describe(
    "What the video shows: at most 32,000 characters, unless the model has another bound.",
  ),
  seconds: seconds.optional().describe(
    "The length of the video in seconds, such as `4`. By default, the model decides.",
  ),
  size: anything("string").describe("Such as `1280x720`."),
  input_reference: anything("string").describe(
    "The image that the video starts with: an object with its `image_url`, or in a form, a file.",
  ),
}).meta({ id: "VideoRequest" });

/** Checks the parsed body, or the fields of a form, of `POST /v1/videos`. */
export const videoRequestSchema = present(videoBody);

const remixBody = z.looseObject({ prompt: videoBody.shape.prompt })
  .meta({ id: "VideoRemixRequest" });

/** The body of `POST /v1/videos/{id}/remix`: the new prompt. */
export const videoRemixSchema = present(remixBody);

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

/** A request that starts a video, as a media worker runs it. */
export interface VideoCreation extends ForServer {
  kind: "video";
  action: "create";
  stream: false;
  prompt: string;
  /** The length that the client asks for. */
  seconds?: string | undefined;
  /**
   * The length by frames or other names of `seconds`, 0 without: the model server may
   * make that and state its default.
   */
  secondsLeast: number;
  size?: string | undefined;
  /** The `data:` URL of a JSON body, which the model server gets as a file. */
  reference?: string;
}

/** A request about videos, as a media worker runs it. */
export type VideoRequest =
  | VideoCreation
  | ForVideo & { action: "retrieve" | "delete" }
  | ForVideo & { action: "remix"; prompt: string; fields: Fields }
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
  error: z.looseObject({ code: z.string(), message: z.string() }).nullable(),
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
  /** Members that only the model server knows. */
  more: z.record(z.string(), z.unknown()).default({}),
});

/** What a model server says of a job. */
export type EngineVideo = z.output<typeof engineVideoSchema>;

/**
 * A video, as clients see it. All members are always there, and those that only the
 * model server knows beside them.
 */
export const videoSchema = z.looseObject({
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
