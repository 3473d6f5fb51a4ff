/** What clients hear of kept answers beside their content. */
import { z } from "zod";

const membersSchema = z.record(z.string(), z.unknown()).nullable();

/** Body of `GET /v1/answers/{id}` for `Accept: application/json`. */
export const answerSchema = z.strictObject({
  id: z.string().describe("`x-gateway-answer` of its response."),
  object: z.literal("answer"),
  state: z.enum(["running", "complete", "failed"]),
  model: z.string(),
  endpoint: z.string().describe("Whose answer it is: `chat`, `messages` …"),
  stream: z.boolean(),
  created: z.int().describe("When its request came, in Unix seconds."),
  keep_seconds: z.int().describe("For how long it is kept after its end."),
  usage: membersSchema.describe("The counts of the model server, at its end."),
  error: membersSchema.describe("The error with which it has failed."),
}).meta({ id: "Answer" });

/** What is known of a kept answer. */
export type AnswerState = z.output<typeof answerSchema>;

/** Body of `DELETE /v1/answers/{id}`. */
export const answerDeletedSchema = z.strictObject({
  id: z.string(),
  object: z.literal("answer.deleted"),
  deleted: z.literal(true),
}).meta({ id: "AnswerDeleted" });

/** The body that confirms that a kept answer was deleted. */
export type AnswerDeleted = z.output<typeof answerDeletedSchema>;
