/** Reads the fields of a request, from JSON or a form. Pure. */
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { ApiError, fieldError } from "@gateway/shared/openai/error";
import { nullable } from "@gateway/shared/openai/fields";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";
import { clip } from "@gateway/shared/process/error_text";
import { z } from "zod";

/** The models that the simulator has, one of each kind. */
export const MODEL_IDS = {
  chat: DEFAULT_MODEL_ID,
  speech: "simulated-speech-1",
  image: "simulated-image-1",
  transcription: "simulated-transcription-1",
  video: "simulated-video-1",
  embedding: "simulated-embedding-1",
  rerank: "simulated-rerank-1",
} as const;

/** Throws an `ApiError` unless a request names the model of its kind. */
export function checkModel(model: string, kind: keyof typeof MODEL_IDS): void {
  if (model === MODEL_IDS[kind]) return;
  const message = `The model \`${clip(model)}\` does not exist.`;
  throw fieldError("model_not_found", "model", message);
}

/** The body of a request. */
export interface Received {
  /** The body as text; of a form, its fields as JSON, with the names of files. */
  readonly text: string;
  /** The fields of a form, files among them. */
  readonly form?: object;
}

/** Reads a body. Throws an `ApiError` if it is a broken form. */
export async function receive(request: Request): Promise<Received> {
  const contentType = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\b/i.test(contentType)) {
    return { text: await request.text() };
  }
  const form = await request.formData().then(fieldsOf, () => {
    throw new ApiError("invalid_request", "The form is not valid.");
  });
  const text = JSON.stringify(
    form,
    (_, value: unknown) => value instanceof File ? value.name : value,
  );
  return { text, form };
}

/** A name that occurs twice or ends with `[]` has a list. */
function fieldsOf(form: FormData): object {
  return Object.fromEntries(
    [...form.keys()].map((name) => {
      const values = form.getAll(name);
      const isList = name.endsWith("[]") || values.length > 1;
      return [name.replace(/\[\]$/, ""), isList ? values : values[0]];
    }),
  );
}

/**
 * The fields of a request for media. Throws an `ApiError` that names the first mistake;
 * the model of another kind is one.
 */
export function readMedia<Schema extends z.ZodType<{ model: string }>>(
  kind: keyof typeof MODEL_IDS,
  schema: Schema,
  { text, form }: Received,
): z.output<Schema> {
  const request = checked(nullable(schema), form ?? parseJsonBody(text));
  checkModel(request.model, kind);
  return request;
}
