/**
 * Videos: the schemas of requests and answers, after OpenAI's API specification of
 * August 2026, and the forms that travel inside the gateway. A video is a job at a
 * model server, which clients poll until it has ended.
 */
import * as z from "zod";
import { MEDIA_LIMITS as LIMITS } from "../limits.ts";
import { nullable, readAs } from "./fields.ts";
import { mediaText, model, pictureReference } from "./media.ts";

const wholeSeconds = z.string().regex(/^[1-9]\d{0,2}$/, {
  error: "a whole number of seconds, such as '4'",
});
const seconds = readAs(
  wholeSeconds,
  (value) => typeof value === "number" ? String(value) : value,
);

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

/** Checks the parsed body, or the form, of `POST /v1/videos` and converts it. */
export const videoRequestSchema = nullable(videoBody).transform(
  ({ input_reference, ...rest }) => ({
    ...rest,
    ...input_reference && { reference: input_reference.image_url },
    kind: "video" as const,
    action: "create" as const,
    stream: false as const,
  }),
);

/** Checks the parsed body of `POST /v1/videos/{id}/remix`. */
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

export const VIDEO_STATUSES = [
  "queued",
  "in_progress",
  "completed",
  "failed",
] as const;
export type VideoStatus = typeof VIDEO_STATUSES[number];

const text = z.string().nullable();
const unixSeconds = z.int().min(0);
const state = {
  status: z.enum(VIDEO_STATUSES),
  progress: z.int().min(0).max(100),
  completed_at: unixSeconds.nullable(),
  seconds: text,
  size: text,
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
};

/** What a model server says of a job: the answer of a worker to every action but `content`. */
export const engineVideoSchema = z.strictObject({
  ...state,
  /** The name of the backend, and its name for the job. */
  backend: z.string(),
  id: z.string(),
  expires_at: unixSeconds.nullable(),
});
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
