/**
 * Reads `multipart/form-data` (RFC 7578) as it arrives: fields are kept, the bytes of
 * files are handed on in pieces, and a client is read only as fast as they are taken.
 */
import { Buffer } from "node:buffer";
import type { Readable } from "node:stream";
import { Busboy } from "@fastify/busboy";
import {
  BODY_DEADLINES,
  BUS_LIMITS,
  UPLOAD_LIMITS,
} from "@gateway/shared/limits";
import { ApiError, fieldError } from "@gateway/shared/openai/error";
import type { UploadEnd } from "@gateway/shared/bus/job";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import {
  type BodyBudget,
  type HeldBody,
  refusal,
  tooSlow,
} from "./read_body.ts";
import type { Exchange } from "./server.ts";

export interface FormBounds {
  /** The fields that are files; all others are text. */
  fileFields: readonly string[];
  /** Of one file. Beyond: 413. */
  fileBytesMax: number;
}

export interface FormDependencies {
  bodyBudget: BodyBudget;
  deadlines: Deadlines;
  now: MonotonicNow;
}

/** Text by field name; those named `x[]` are lists. */
export type FormFields = { [name: string]: string | string[] };

/** What an edge holds of an upload: the pieces in flight, and the next one. */
const HELD_BYTES = (BUS_LIMITS.piecesInFlight + 1) * BUS_LIMITS.pieceBytes;
/** The media type of forms. */
export const FORM_TYPE = /^multipart\/form-data\s*(;|$)/i;
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
  /** Resolves at the first byte of a file or at the end of the form, or when the client has left; rejects with an `ApiError`. */
  readonly begun: Promise<"file" | "end" | "left">;
  /** Rejects with the `ApiError` for a form that is not acceptable; else it is never settled. */
  readonly failed: Promise<never>;
  readonly #begun = Promise.withResolvers<"file" | "end" | "left">();
  readonly #failed = Promise.withResolvers<never>();
  readonly #body: Readable;
  readonly #release: () => void;
  #pieces: Uint8Array[] = [];
  #bytes = 0;
  /** The files that have not been read to their end, in the order of the form. */
  readonly #open: { file: UploadEnd["files"][number]; stream: Readable }[] = [];
  #hasArrived = false;
  #isAtEnd = false;
  #isOver = false;
  #wake: (() => void) | null = null;

  /** Throws an `ApiError` for a form that is too large, or has no boundary. */
  constructor(
    { headers, openBody }: Pick<Exchange, "headers" | "openBody">,
    keyId: string,
    { fileFields, fileBytesMax }: FormBounds,
    { bodyBudget, deadlines, now }: FormDependencies,
  ) {
    const { bytesMax, fieldBytesMax, totalMs } = UPLOAD_LIMITS;
    if (Number(headers.get("content-length") ?? 0) > bytesMax) {
      throw tooLarge(bytesMax);
    }
    const parser = createParser(headers, fileBytesMax);
    const held: HeldBody = {
      keyId,
      bytes: 0,
      refuse: (error) => this.#fail(error),
    };
    const refusal = bodyBudget.grow(held, HELD_BYTES);
    if (refusal !== null) throw refusal;
    this.begun = this.#begun.promise;
    this.failed = this.#failed.promise;
    // A rejection of either must not count as unhandled while it is not awaited.
    this.begun.catch(() => {});
    this.failed.catch(() => {});
    const totalAtMs = now() + totalMs;
    const deadline = {
      expiresAtMs: now() + BODY_DEADLINES.progressMs,
      expire: () => this.#fail(tooSlow()),
    };
    deadlines.add(deadline);
    let size = 0;
    const body = openBody();
    this.#body = body;
    this.#release = () => {
      deadlines.remove(deadline);
      bodyBudget.release(held);
    };
    body.on("data", (piece: Uint8Array) => {
      size += piece.length;
      if (size > bytesMax) return this.#fail(tooLarge(bytesMax));
      deadline.expiresAtMs = Math.min(
        now() + BODY_DEADLINES.progressMs,
        totalAtMs,
      );
    });
    body.once("end", () => this.#hasArrived = true);
    body.once("close", () => {
      if (this.#hasArrived) return;
      this.#begun.resolve("left");
      this.stop();
    });
    parser.on("field", (
      name: string,
      value: string,
      isNameCut: boolean,
      isCut: boolean,
    ) => {
      if (isNameCut || isCut) {
        return this.#fail(fieldTooLong(name, fieldBytesMax));
      }
      if (fileFields.includes(listName(name))) {
        return this.#fail(notAFile(name));
      }
      this.#addField(name, value);
    });
    parser.on("file", (
      field: string,
      stream: Readable,
      name: string | undefined,
      _encoding: string,
      type: string,
    ) => {
      stream.once("limit", () => this.#fail(tooLarge(fileBytesMax)));
      stream.once("error", () => this.#fail(malformed()));
      // A file that is not expected is read and dropped, like an unknown field.
      if (!fileFields.includes(listName(field))) return void stream.resume();
      const file = {
        field: listName(field),
        name: (name ?? "").replace(CONTROLS, "").slice(0, FILE_NAME_CHARS_MAX),
        type: type.replace(CONTROLS, ""),
        bytes: 0,
      };
      this.files.push(file);
      this.#open.push({ file, stream });
      stream.on("readable", () => {
        this.#begun.resolve("file");
        this.#wake?.();
      });
      stream.once("end", () => this.#wake?.());
    });
    for (const event of ["partsLimit", "filesLimit", "fieldsLimit"] as const) {
      parser.once(event, () => this.#fail(tooManyParts()));
    }
    parser.once("error", () => this.#fail(malformed()));
    parser.once("finish", () => {
      this.#isAtEnd = true;
      this.#begun.resolve("end");
      this.#wake?.();
    });
    body.pipe(parser);
  }

  /** The next bytes of the files, at most a piece of the bus; null at the end of the form, or once it is over. */
  async next(): Promise<Uint8Array | null> {
    while (!this.#isOver) {
      this.#read();
      const isEnd = this.#isAtEnd && this.#open.length === 0;
      if (this.#bytes >= BUS_LIMITS.pieceBytes || isEnd) break;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    if (this.#isOver || this.#bytes === 0) return null;
    const all = Buffer.concat(this.#pieces);
    const piece = all.subarray(0, BUS_LIMITS.pieceBytes);
    const rest = all.subarray(piece.length);
    this.#pieces = rest.length === 0 ? [] : [rest];
    this.#bytes = rest.length;
    return piece;
  }

  /** Takes what the files have, one file after the other, up to a piece. */
  #read(): void {
    for (let at = this.#open[0]; at !== undefined; at = this.#open[0]) {
      const { file, stream } = at;
      while (this.#bytes < BUS_LIMITS.pieceBytes) {
        const bytes: unknown = stream.read();
        if (!(bytes instanceof Uint8Array)) break;
        file.bytes += bytes.length;
        this.#bytes += bytes.length;
        this.#pieces.push(bytes);
      }
      if (!stream.readableEnded) return;
      this.#open.shift();
    }
  }

  /** Drops whatever else arrives. Idempotent. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#release();
    this.#body.unpipe();
    this.#body.resume();
    for (const { stream } of this.#open.splice(0)) stream.resume();
    this.#pieces = [];
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

function fieldTooLong(name: string, bytesMax: number): ApiError {
  const message = `Invalid '${name}': expected at most ${bytesMax} bytes.`;
  return fieldError("string_above_max_length", name, message);
}

function notAFile(name: string): ApiError {
  const message = `Invalid '${name}': expected a file, but got text.`;
  return fieldError("invalid_type", name, message);
}
