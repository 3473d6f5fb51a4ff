/** Reads the fields of a request, from JSON or a form. Pure. */
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { requestFault } from "@gateway/shared/openai/request_fault";
import * as z from "zod";
import { HttpError } from "./errors.ts";

export const MODEL_IDS = {
  chat: DEFAULT_MODEL_ID,
  speech: "simulated-speech-1",
  image: "simulated-image-1",
  transcription: "simulated-transcription-1",
  video: "simulated-video-1",
} as const;

/** Throws an {@link HttpError} unless a request names the model of its kind. */
export function checkModel(model: string, kind: keyof typeof MODEL_IDS): void {
  if (model === MODEL_IDS[kind]) return;
  const name = model.slice(0, 200);
  throw new HttpError(`The model \`${name}\` does not exist.`, {
    status: 404,
    param: "model",
    code: "model_not_found",
  });
}

const named = z.object({ model: z.string() });
const anyObject = z.record(z.string(), z.unknown());
type Fields = z.output<typeof anyObject>;

export interface Received {
  /** Of a form, its fields as JSON, files by name. */
  readonly text: string;
  /** The fields of a form, files among them. */
  readonly form?: Fields;
}

/** Reads a body. Throws an {@link HttpError} if it is a broken form. */
export async function receive(request: Request): Promise<Received> {
  const contentType = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\b/i.test(contentType)) {
    return { text: await request.text() };
  }
  const form = await request.formData().then(fieldsOf, () => {
    throw new HttpError("The form is not valid.");
  });
  const text = JSON.stringify(
    form,
    (_, value: unknown) => value instanceof File ? value.name : value,
  );
  return { text, form };
}

/** A name that occurs twice or ends with `[]` has a list. */
function fieldsOf(form: FormData): Fields {
  return Object.fromEntries(
    [...form.keys()].map((name) => {
      const values = form.getAll(name);
      const isList = name.endsWith("[]") || values.length > 1;
      return [name.replace(/\[\]$/, ""), isList ? values : values[0]];
    }),
  );
}

export const flag = z.preprocess(
  (value) => value === "true" || (value === "false" ? false : value),
  z.boolean().default(false),
);

export function parseJson(text: string): unknown {
  try {
    return parseJsonBody(text);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new HttpError(error.message);
  }
}

/** The fields as the schema reads them. Throws an {@link HttpError} that names the first mistake. */
export function checked<Schema extends z.ZodType>(
  schema: Schema,
  fields: unknown,
): z.output<Schema> {
  const result = schema.safeParse(fields);
  if (result.success) return result.data;
  const { message, param } = requestFault(fields, result.error);
  throw new HttpError(message, { param });
}

/** Null means absent. Throws an {@link HttpError} for another kind's model, or that names the first mistake. */
export function readMedia<Schema extends z.ZodType>(
  kind: keyof typeof MODEL_IDS,
  schema: Schema,
  { text, form }: Received,
): z.output<Schema> {
  const given = Object.entries(form ?? checked(anyObject, parseJson(text)))
    .filter(([, value]) => value !== null);
  const fields = Object.fromEntries(given);
  checkModel(checked(named, fields).model, kind);
  return checked(schema, fields);
}
