/** Runs one request on the model servers of its model. */
import type { JobRequest } from "@gateway/shared/bus/job";
import * as media from "@gateway/shared/openai/media";
import type { ModelServer } from "@gateway/shared/upstream/model_server";
import type { AnswerMemory } from "@gateway/shared/worker/jobs/memory";
import { corruptedRequest } from "@gateway/shared/worker/jobs/job_errors";
import type {
  JobContext,
  JobCost,
} from "@gateway/shared/worker/jobs/job_ports";
import type { Pool } from "@gateway/shared/worker/service";
import { z } from "zod";
import { AttemptAnswer, type MediaAttempt } from "./attempt.ts";
import { speak, transcribe } from "./audio.ts";
import { namedByContent } from "./files/file_types.ts";
import { draw } from "./images.ts";
import { pictureFiles, referenceFiles } from "./files/picture_files.ts";
import { passOnVideo } from "./videos.ts";

const text = z.string();
const requestOf = (kind: media.MediaRequest["kind"], fields: z.ZodRawShape) =>
  z.object({ ...fields, kind: z.literal(kind) });
const fields = z.record(z.string(), z.unknown());
/** The fields that this service relies on: the edge has checked them all. */
const reliedOn = z.union([
  requestOf("speech", { input: text, format: text, fields }),
  requestOf("image", {
    task: z.enum(["generate", "edit"]),
    prompt: text,
    count: z.number(),
    format: text,
    fields,
  }),
  requestOf("transcription", {
    task: z.enum(["transcribe", "translate"]),
    format: text,
    fields,
  }),
  requestOf("video", { action: z.literal("create"), prompt: text, fields }),
  requestOf("video", {
    action: z.enum(["retrieve", "content", "delete", "remix"]),
    backend: text,
    id: text,
  }),
]);

function isMediaRequest(request: JobRequest): request is media.MediaRequest {
  return reliedOn.safeParse(request).success;
}

/** Runs a request until its answer is complete. Rejects like `BackendPool.run`. */
export async function runMedia(
  request: JobRequest,
  context: JobContext,
  { pool, memory }: { pool: Pool<ModelServer>; memory: AnswerMemory },
): Promise<JobCost> {
  if (!isMediaRequest(request)) throw corruptedRequest();
  const files = filesOf(request, context.files);
  let last: AttemptAnswer | null = null;
  try {
    const tokens = await pool.run(
      { ...context, isOfRunningJob: isOfRunningJob(request) },
      async (server, progress) => {
        const answer = new AttemptAnswer(
          { ...context, files },
          progress,
          request,
        );
        last = answer;
        await passOn({ request, server, answer, memory });
        return answer.unitsMade;
      },
      ({ config: { name } }) =>
        !("backend" in request) || name === request.backend,
    );
    return { usage: null, tokens };
  } catch (error) {
    if (context.signal.aborted) reportStarted(context, last);
    throw error;
  }
}

/** Whether the request is about a job that already runs on one backend. */
const isOfRunningJob = (request: media.MediaRequest): boolean =>
  request.kind === "video" && request.action !== "create" &&
  request.action !== "remix";

/**
 * Counts what the server makes as a whole: it may finish that even if it was asked to
 * stop.
 */
function reportStarted(
  context: JobContext,
  answer: AttemptAnswer | null,
): void {
  if (answer === null) return;
  context.write("", Math.max(answer.unitsMade, answer.unitsStarted));
}

/**
 * Passes on what one model server answers. Rejects with an `UpstreamError`, or with
 * what ended the attempt.
 */
export function passOn({ request, ...attempt }: MediaAttempt): Promise<void> {
  switch (request.kind) {
    case "speech":
      return speak({ ...attempt, request });
    case "image":
      return draw({ ...attempt, request });
    case "transcription":
      return transcribe({ ...attempt, request });
    case "video":
      return passOnVideo({ ...attempt, request });
  }
}

/**
 * The files of a request, named by their content. Rejects a file that is not an image
 * where one is needed.
 */
function filesOf(request: media.MediaRequest, uploaded: JobContext["files"]) {
  if (request.kind === "image" && request.task === "edit") {
    return pictureFiles(request, uploaded);
  }
  return request.kind === "video" && request.action === "create"
    ? referenceFiles(request.reference, uploaded)
    : uploaded.map(namedByContent);
}
