/** Runs one request on the backends of its model. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { MediaRequest } from "@gateway/shared/openai/media";
import {
  corruptedRequest,
  type JobCall,
  type JobCost,
} from "@gateway/shared/worker/job";
import type { Pools } from "@gateway/shared/worker/service";
import * as z from "zod";
import type { Engine } from "./engine.ts";
import { pictureFiles, referenceFiles } from "./picture_files.ts";

/** The fields that this service relies on: the edge has checked them all. */
const reliedOn = z.union([
  z.object({
    kind: z.literal("speech"),
    input: z.string(),
    response_format: z.enum(["mp3", "opus", "aac", "flac", "wav", "pcm"]),
  }),
  z.object({
    kind: z.literal("image"),
    task: z.enum(["generate", "edit"]),
    prompt: z.string(),
    n: z.number(),
  }),
  z.object({
    kind: z.literal("transcription"),
    task: z.enum(["transcribe", "translate"]),
    response_format: z.enum(["json", "text", "srt", "verbose_json", "vtt"]),
  }),
  z.object({
    kind: z.literal("video"),
    action: z.literal("create"),
    prompt: z.string(),
  }),
  z.object({
    kind: z.literal("video"),
    action: z.enum(["retrieve", "content", "delete", "remix"]),
    backend: z.string(),
    id: z.string(),
  }),
]);

function isMediaRequest(request: JobRequest): request is MediaRequest {
  return reliedOn.safeParse(request).success;
}

/** Runs a request until its answer is complete. Rejects like `BackendPool.run`. */
export async function runMedia(
  request: JobRequest,
  call: JobCall,
  pools: Pools<Engine>,
): Promise<JobCost> {
  const pool = pools.get(request.model);
  if (pool === undefined || !isMediaRequest(request)) throw corruptedRequest();
  const files = filesOf(request, call.files);
  const made = await pool.run(
    call,
    (engine, progress) => engine.run(request, { ...call, files }, progress),
    "backend" in request ? request.backend : undefined,
  );
  return { usage: null, tokens: made };
}

/** The files of a request. Rejects a file that is not an image where one is needed. */
function filesOf(request: MediaRequest, uploaded: JobCall["files"]) {
  if (request.kind === "image" && request.task === "edit") {
    return pictureFiles(request, uploaded);
  }
  return request.kind === "video" && request.action === "create"
    ? referenceFiles(request.reference, uploaded)
    : uploaded;
}
