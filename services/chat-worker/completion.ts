/** Runs one chat completion on the backends of its model. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import {
  corruptedRequest,
  type JobCall,
  type JobCost,
} from "@gateway/shared/worker/job";
import type { Pools } from "@gateway/shared/worker/service";
import * as z from "zod";
import { Answer } from "./backends/answer.ts";
import type { OpenAiBackend } from "./backends/openai.ts";

/** The fields that this service relies on: the edge has checked them all. */
const reliedOn = z.object({
  messages: z.array(z.unknown()),
  include_usage: z.boolean(),
  n: z.number(),
});

function isChatRequest(request: JobRequest): request is ChatRequest {
  return reliedOn.safeParse(request).success;
}

/** Runs a request until its answer is complete. Rejects like {@link BackendPool.run}. */
export async function runCompletion(
  request: JobRequest,
  call: JobCall,
  pools: Pools<OpenAiBackend>,
): Promise<JobCost> {
  const pool = pools.get(request.model);
  if (pool === undefined || !isChatRequest(request)) throw corruptedRequest();
  const usage = await pool.run(call, async (backend, progress) => {
    const answer = new Answer(request, call, progress);
    const usage = await backend.complete(answer);
    answer.end(usage);
    return usage;
  });
  return { usage, tokens: usage.completion_tokens };
}
