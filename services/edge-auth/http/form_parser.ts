/** The parser of `multipart/form-data`, and what is no such body. */
import { Busboy, type BusboyFileStream } from "@fastify/busboy";
import { UPLOAD_LIMITS } from "@gateway/shared/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import type { Exchange } from "./exchange.ts";
import { refusal } from "./read_body.ts";

/** Emits the fields and files of a form that is written to it. */
export type Parser = InstanceType<typeof Busboy>;
/** Emits the bytes of a file. */
export type FileStream = BusboyFileStream;

/** What the parser says of a field. */
export type FieldEvent = [
  name: string,
  value: string,
  isNameCut: boolean,
  isCut: boolean,
  ...rest: unknown[],
];

/** What the parser says of a file. */
export type FileEvent = [
  field: string,
  stream: FileStream,
  name: string | undefined,
  encoding: string,
  type: string,
];

const FORM_TYPE = /^multipart\/form-data\s*(;|$)/i;
const FIELD_NAME_BYTES_MAX = 100;

/** Whether a request says that its body is a form. */
export function isForm(headers: Exchange["headers"]): boolean {
  return FORM_TYPE.test(headers["content-type"] ?? "");
}

/**
 * The parser of a body with these headers. Throws an `ApiError` for another type, or
 * one without a boundary.
 */
export function createParser(
  headers: Exchange["headers"],
): Parser {
  if (!isForm(headers)) throw wrongType();
  try {
    return new Busboy({
      headers: { "content-type": headers["content-type"] ?? "" },
      limits: {
        fieldNameSize: FIELD_NAME_BYTES_MAX,
        fieldSize: UPLOAD_LIMITS.fieldBytesMax,
        fields: UPLOAD_LIMITS.fieldsMax,
        files: UPLOAD_LIMITS.filesMax,
        parts: UPLOAD_LIMITS.partsMax,
        headerPairs: UPLOAD_LIMITS.headersMax,
      },
    });
  } catch {
    throw malformed();
  }
}

const wrongType = () =>
  refusal(
    "unsupported_media_type",
    "Unsupported 'Content-Type'. Send the body as 'multipart/form-data'.",
  );

/** The 400 for a body that is no form. */
export const malformed = (): ApiError =>
  refusal(
    "invalid_request",
    "We could not read the body of your request as multipart/form-data.",
  );
