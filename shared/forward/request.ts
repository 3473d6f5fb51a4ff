/** A forwarded request as a job carries it: the client's body, and what governs it. */
import { z } from "zod";
import type { JobRequest } from "../bus/job.ts";
import { FORWARD_NAMES } from "./endpoints.ts";
import { replaced } from "./members.ts";

const index = z.int().min(0);

const forwardRequestSchema = z.object({
  model: z.string(),
  stream: z.boolean(),
  forward: z.enum([...FORWARD_NAMES, "other"]),
  /** The path of `other`: one of the `forward_paths` of a server. */
  path: z.string().exactOptional(),
  /** The query with its `?`, or empty. */
  query: z.string(),
  /** Headers of the client that pass, by name in lower case. */
  headers: z.record(z.string(), z.string()),
  /** The JSON of the client. */
  body: z.string(),
  /** Where the value of its `model` stands, which each server has its own name for. */
  modelAt: z.object({ from: index, to: index }),
  /** The tokens of the prompt as estimated, for a server that states no usage. */
  promptTokens: z.number().min(0),
  /** How many answers to all prompts are asked for. */
  choices: z.int().min(1),
  /** The longest answer, in tokens; null: the client has set no bound. */
  outputTokensMax: z.number().min(0).nullable(),
  /** How many vectors the answer must have; null: none are expected. */
  vectors: z.int().min(0).nullable(),
});

/** A request whose body goes to a model server as it came. */
export type ForwardRequest = z.infer<typeof forwardRequestSchema>;

/** Whether a job is one of a forwarded endpoint, as its edge has made it. */
export function isForwardRequest(
  request: JobRequest,
): request is ForwardRequest {
  return "forward" in request &&
    forwardRequestSchema.safeParse(request).success;
}

/** The client's body with another value for `model`, and nothing else changed. */
export function bodyFor(
  { body, modelAt }: Pick<ForwardRequest, "body" | "modelAt">,
  model: string,
): string {
  return replaced(body, [{ ...modelAt, text: JSON.stringify(model) }]);
}
