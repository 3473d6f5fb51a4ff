/**
 * Reads `multipart/form-data` (RFC 7578) as it arrives: fields are kept, the bytes of
 * files are handed on in pieces, and a client is read only as fast as they are taken.
 */
import { Buffer } from "node:buffer";
import type { Readable } from "node:stream";
import { Busboy } from "@fastify/busboy";
import { BUS_LIMITS, UPLOAD_LIMITS } from "@gateway/shared/limits";
import { type ApiError, fieldError } from "@gateway/shared/openai/error";
import type { UploadEnd } from "@gateway/shared/bus/job";
import { HeldBody, type HeldBodyBounds, refusal } from "./read_body.ts";
import type { Exchange } from "./server.ts";

export interface FormBounds {
  /** The fields that are files, and how many there must be at least and at most. */
  files: Readonly<Record<string, readonly [min: number, max: number]>>;
  /** Of one file. Beyond: 413. */
  fileBytesMax: number;
}

/** Text by field name; those named `x[]` are lists. */
export type FormFields = { [name: string]: string | string[] };

/** What an edge holds of an upload: the pieces in flight, and the next one. */
const HELD_BYTES = (BUS_LIMITS.piecesInFlight + 1) * BUS_LIMITS.pieceBytes;
const FORM_TYPE = /^multipart\/form-data\s*(;|$)/i;
const FIELD_NAME_BYTES_MAX = 100;
const FILE_NAME_CHARS_MAX = 200;
const CONTROLS = /\p{Cc}/gu;

/** Whether a request says that its body is a form. */
export const isForm = (headers: Exchange["headers"]) =>
  FORM_TYPE.test(headers.get("content-type") ?? "");

/** A form that is being read. Call `stop` when nothing more of it is needed. */
export class Form {
  readonly fields: FormFields = Object.create(null);
  /** The files so far; the bytes of the last one may still grow. */
  readonly files: UploadEnd["files"] = [];
  readonly #begun = Promise.withResolvers<"file" | "end" | "left">();
  /** Resolves at the first byte of a file or at the end of the form, or when the client has left; rejects with an `ApiError`. */
  readonly begun = this.#begun.promise;
  readonly #failed = Promise.withResolvers<never>();
  /** Rejects with the `ApiError` for a form that is not acceptable; else it is never settled. */
  readonly failed = this.#failed.promise;
  readonly #bounds: FormBounds;
  readonly #body: Readable;
  readonly #held: HeldBody;
  /** Bytes of files that have arrived and were not taken yet. */
  #pieces: Uint8Array[] = [];
  #bytes = 0;
  #isAtEnd = false;
  #isOver = false;
  #wake: (() => void) | null = null;

  /** Throws an `ApiError` for a form that is too large, or has no boundary. */
  constructor(
    { headers, openBody }: Pick<Exchange, "headers" | "openBody">,
    keyId: string,
    bounds: FormBounds,
    budget: HeldBodyBounds,
  ) {
    const { bytesMax, totalMs } = UPLOAD_LIMITS;
    if (Number(headers.get("content-length") ?? 0) > bytesMax) {
      throw tooLarge(bytesMax);
    }
    const parser = createParser(headers, bounds.fileBytesMax);
    const refuse = (error: ApiError) => this.#fail(error);
    this.#held = new HeldBody(budget, { keyId, totalMs, refuse });
    const noRoom = budget.bodyBudget.grow(this.#held, HELD_BYTES);
    if (noRoom !== null) {
      this.#held.release();
      throw noRoom;
    }
    this.#bounds = bounds;
    // A rejection of either must not count as unhandled while it is not awaited.
    this.begun.catch(() => {});
    this.failed.catch(() => {});
    let size = 0;
    let hasArrived = false;
    this.#body = openBody();
    this.#body.on("data", (piece: Uint8Array) => {
      if (this.#isOver) return;
      size += piece.length;
      if (size > bytesMax) return this.#fail(tooLarge(bytesMax));
      this.#held.progressed();
      parser.write(piece);
      if (this.#bytes >= BUS_LIMITS.pieceBytes) this.#body.pause();
    });
    this.#body.once("end", () => {
      hasArrived = true;
      if (!this.#isOver) parser.end();
    });
    this.#body.once("close", () => {
      if (hasArrived) return;
      this.#begun.resolve("left");
      this.stop();
    });
    this.#listen(parser);
  }

  #listen(parser: ReturnType<typeof createParser>): void {
    const { files, fileBytesMax } = this.#bounds;
    const isFile = (name: string) => Object.hasOwn(files, listName(name));
    parser.on("field", (name, value, isNameCut, isCut) => {
      if (isNameCut || isCut) return this.#fail(fieldTooLong(name));
      if (isFile(name)) return this.#fail(notAFile(name));
      this.#addField(name, value);
    });
    parser.on("file", (field, stream, name, _encoding, type) => {
      stream.once("limit", () => this.#fail(tooLarge(fileBytesMax)));
      stream.on("error", () => this.#fail(malformed()));
      // A file that is not expected is read and dropped, like an unknown field.
      if (!isFile(field)) return void stream.resume();
      const file = {
        field: listName(field),
        // Without a name it is undefined, whatever its type says.
        name: (name ?? "").replace(CONTROLS, "").slice(0, FILE_NAME_CHARS_MAX),
        type: type.replace(CONTROLS, ""),
        bytes: 0,
      };
      this.files.push(file);
      stream.on("data", (bytes: Uint8Array) => {
        if (this.#isOver) return;
        file.bytes += bytes.length;
        this.#bytes += bytes.length;
        this.#pieces.push(bytes);
        this.#begun.resolve("file");
        this.#wake?.();
      });
    });
    for (const event of ["partsLimit", "filesLimit", "fieldsLimit"] as const) {
      parser.once(event, () => this.#fail(tooManyParts()));
    }
    parser.on("error", () => this.#fail(malformed()));
    parser.once("finish", () => {
      this.#isAtEnd = true;
      this.#begun.resolve("end");
      this.#wake?.();
    });
  }

  /** The next bytes of the files, at most a piece of the bus; null at the end of the form, or once it is over. */
  async next(): Promise<Uint8Array | null> {
    const { pieceBytes } = BUS_LIMITS;
    while (!this.#isOver && !this.#isAtEnd && this.#bytes < pieceBytes) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      this.#body.resume();
      await promise;
    }
    if (this.#isOver || this.#bytes === 0) return null;
    const all = Buffer.concat(this.#pieces);
    const piece = all.subarray(0, pieceBytes);
    const rest = all.subarray(piece.length);
    this.#pieces = rest.length === 0 ? [] : [rest];
    this.#bytes = rest.length;
    return piece;
  }

  /** Throws an `ApiError` if the form has fewer or more files of a name than it may have. */
  requireFiles(): void {
    for (const [name, [min, max]] of Object.entries(this.#bounds.files)) {
      const { length } = this.files.filter(({ field }) => field === name);
      if (length < min) {
        const message = `Missing required parameter: '${name}'.`;
        throw fieldError("missing_required_parameter", name, message);
      }
      if (length <= max) continue;
      const most = max === 1 ? "one file" : `at most ${max} files`;
      const message = `Invalid '${name}': expected ${most}.`;
      throw fieldError("invalid_value", name, message);
    }
  }

  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#held.release();
    this.#body.resume();
    this.#pieces = [];
    this.#bytes = 0;
    this.#wake?.();
  }

  #fail(error: ApiError): void {
    if (this.#isOver) return;
    this.stop();
    this.#failed.reject(error);
    this.#begun.reject(error);
  }

  #addField(name: string, value: string): void {
    if (!name.endsWith("[]")) {
      this.fields[name] = value;
      return;
    }
    const list = this.fields[listName(name)];
    if (Array.isArray(list)) list.push(value);
    else this.fields[listName(name)] = [value];
  }
}

/** `image[]` and `image` are the same field: the first has several values. */
const listName = (name: string) => name.replace(/\[\]$/, "");

function createParser(headers: Exchange["headers"], fileSize: number) {
  const { fieldBytesMax, fieldsMax, filesMax, partsMax, headersMax } =
    UPLOAD_LIMITS;
  if (!isForm(headers)) throw wrongType();
  try {
    return new Busboy({
      headers: { "content-type": headers.get("content-type") ?? "" },
      limits: {
        fileSize,
        fieldNameSize: FIELD_NAME_BYTES_MAX,
        fieldSize: fieldBytesMax,
        fields: fieldsMax,
        files: filesMax,
        parts: partsMax,
        headerPairs: headersMax,
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
const malformed = () =>
  refusal(
    "invalid_request",
    "We could not read the body of your request as multipart/form-data.",
  );
const tooManyParts = () =>
  refusal(
    "invalid_request",
    `The form has too many parts. The limit is ${UPLOAD_LIMITS.partsMax}, of ` +
      `which ${UPLOAD_LIMITS.filesMax} may be files.`,
  );
const tooLarge = (bytesMax: number) =>
  refusal(
    "request_too_large",
    `The upload is too large. The limit is ${bytesMax} bytes.`,
  );

function fieldTooLong(name: string): ApiError {
  const { fieldBytesMax: bytesMax } = UPLOAD_LIMITS;
  const message = `Invalid '${name}': expected at most ${bytesMax} bytes.`;
  return fieldError("string_above_max_length", name, message);
}

function notAFile(name: string): ApiError {
  const message = `Invalid '${name}': expected a file, but got text.`;
  return fieldError("invalid_type", name, message);
}
