/** Reads the fields of a request, from JSON or a form. Pure. */
import { Buffer } from "node:buffer";
import { ApiError } from "@gateway/shared/openai/error";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { requestFault } from "@gateway/shared/openai/request_fault";
import * as z from "zod";
import { HttpError } from "./errors.ts";
import { checkModel, type Kind } from "./models.ts";

/** The largest JSON body: somewhat more than the gateway accepts by default. */
const JSON_BYTES_MAX = 32 * 1024 * 1024;
/** The largest form: an image to edit has up to 50 MB. */
const FORM_BYTES_MAX = 64 * 1024 * 1024;
const FORM = /^multipart\/form-data\b/i;

const named = z.object({ model: z.string() });
const anyObject = z.record(z.string(), z.unknown());
type Fields = z.output<typeof anyObject>;

export interface Received {
  /** Of a form, its fields as JSON, files by name. */
  readonly text: string;
  /** The fields of a form, files among them. */
  readonly form?: Fields;
}

/** Reads a body. Throws an {@link HttpError} if it is too large or a broken form. */
export async function receive(request: Request): Promise<Received> {
  const contentType = request.headers.get("content-type") ?? "";
  if (!FORM.test(contentType)) {
    return { text: (await bytesOf(request, JSON_BYTES_MAX)).toString() };
  }
  const bytes = await bytesOf(request, FORM_BYTES_MAX);
  const headers = { "content-type": contentType };
  const form = await new Response(bytes, { headers }).formData()
    .catch(() => {
      throw new HttpError("The form is not valid.");
    });
  const fields = fieldsOf(form);
  const text = JSON.stringify(
    fields,
    (_, value: unknown) => value instanceof File ? value.name : value,
  );
  return { text, form: fields };
}

async function bytesOf(request: Request, max: number) {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body ?? []) {
    size += chunk.length;
    if (size > max) {
      throw new HttpError("The request is too large.", { status: 413 });
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** A name that occurs twice or ends with `[]` has a list. */
function fieldsOf(form: FormData): Fields {
  const names = [...new Set(form.keys())];
  return Object.fromEntries(names.map((name) => {
    const [first, ...rest] = form.getAll(name);
    const isList = name.endsWith("[]") || rest.length > 0;
    return [name.replace(/\[\]$/, ""), isList ? [first, ...rest] : first];
  }));
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
  kind: Kind,
  schema: Schema,
  { text, form }: Received,
): z.output<Schema> {
  const given = Object.entries(form ?? checked(anyObject, parseJson(text)))
    .filter(([, value]) => value !== null);
  const fields = Object.fromEntries(given);
  checkModel(checked(named, fields), kind);
  return checked(schema, fields);
}
