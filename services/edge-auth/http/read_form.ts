/**
 * Reads `multipart/form-data` (RFC 7578) as it arrives: fields are kept, the bytes of
 * files are handed on in pieces, and a client is read only as fast as they are taken.
 */
import { Buffer } from "node:buffer";
import { Busboy } from "@fastify/busboy";
import { BODY_PIECES, BUS_LIMITS, UPLOAD_LIMITS } from "@gateway/shared/limits";
import {
  type ApiError,
  type ErrorCode,
  fieldError,
} from "@gateway/shared/openai/error";
import type { UploadEnd } from "@gateway/shared/bus/job";
import * as readBody from "./read_body.ts";
import { discard, type Exchange } from "./server.ts";

export interface FormBounds {
  /** The fields that are files, and how many there must be at least and at most. */
  files: Readonly<Record<string, readonly [min: number, max: number]>>;
  /** Of one file. Beyond: 413. */
  fileBytesMax: number;
}

/** What an edge holds of an upload: the pieces in flight, and the next one. */
const HELD_BYTES = (BUS_LIMITS.piecesInFlight + 1) * BUS_LIMITS.pieceBytes;
const FORM_TYPE = /^multipart\/form-data\s*(;|$)/i;
const FIELD_NAME_BYTES_MAX = 100;
const FILE_NAME_CHARS_MAX = 200;
const CONTROLS = /\p{Cc}/gu;

/** Whether a request says that its body is a form. */
export const isForm = (headers: Exchange["headers"]) =>
  FORM_TYPE.test(headers["content-type"] ?? "");

export type Form = ReturnType<typeof readForm>;

/**
 * Starts reading a form; call `stop` when nothing more of it is needed. Throws an
 * `ApiError` for one that says that it is too large, or has no boundary.
 */
export function readForm(
  { headers, openBody }: Pick<Exchange, "headers" | "openBody">,
  { keyId, bounds, budget }: {
    keyId: string;
    bounds: FormBounds;
    budget: readBody.HeldBodyBounds;
  },
) {
  const { bytesMax, totalMs } = UPLOAD_LIMITS;
  const { pieceBytes } = BUS_LIMITS;
  if (Number(headers["content-length"] ?? 0) > bytesMax) {
    throw tooLarge(bytesMax);
  }
  const parser = createParser(headers, bounds.fileBytesMax);
  /** Text by field name; those named `x[]` are lists. */
  const fields: Record<string, string | string[]> = Object.create(null);
  const files: UploadEnd["files"] = [];
  const begun = Promise.withResolvers<"file" | "end" | "left">();
  const failed = Promise.withResolvers<never>();
  // A rejection of either must not count as unhandled while it is not awaited.
  begun.promise.catch(() => {});
  failed.promise.catch(() => {});
  /** Bytes of files that have arrived and were not taken yet. */
  let pieces: Uint8Array[] = [];
  let bytes = 0;
  let isAtEnd = false;
  let isOver = false;
  let wake = () => {};

  const stop = () => {
    if (isOver) return;
    isOver = true;
    held.release();
    discard(body);
    [pieces, bytes] = [[], 0];
    wake();
  };
  const refuse = (error: ApiError) => {
    if (isOver) return;
    stop();
    failed.reject(error);
    begun.reject(error);
  };
  const held = new readBody.HeldBody(budget, { keyId, totalMs, refuse });
  const noRoom = budget.bodyBudget.grow(held, HELD_BYTES);
  if (noRoom !== null) {
    held.release();
    throw noRoom;
  }

  let size = 0;
  let arrived = 0;
  const body = openBody();
  body.on("data", (piece: Uint8Array) => {
    if (isOver) return;
    size += piece.length;
    if (size > bytesMax) return refuse(tooLarge(bytesMax));
    if (++arrived > BODY_PIECES.free + size / BODY_PIECES.bytesMin) {
      return refuse(readBody.tooManyPieces());
    }
    held.progressed();
    parser.write(piece);
    if (bytes >= pieceBytes) body.pause();
  });
  body.once("end", () => {
    if (!isOver) parser.end();
  });
  const onClose = () => {
    if (body.readableEnded) return;
    begun.resolve("left");
    stop();
  };
  body.once("close", onClose);
  if (body.destroyed) onClose();

  const isFile = (name: string) => Object.hasOwn(bounds.files, listName(name));
  parser.on("field", (name, value, isNameCut, isCut) => {
    if (isNameCut || isCut) {
      const most = `at most ${UPLOAD_LIMITS.fieldBytesMax} bytes`;
      return refuse(invalid("string_above_max_length", name, most));
    }
    if (isFile(name)) {
      return refuse(invalid("invalid_type", name, "a file, but got text"));
    }
    if (!name.endsWith("[]")) return void (fields[name] = value);
    const list = fields[listName(name)];
    if (Array.isArray(list)) list.push(value);
    else fields[listName(name)] = [value];
  });
  parser.on("file", (field, stream, name, _encoding, type) => {
    stream.once("limit", () => refuse(tooLarge(bounds.fileBytesMax)));
    stream.on("error", () => refuse(malformed()));
    // A file that is not expected is read and dropped, like an unknown field.
    if (!isFile(field)) return void stream.resume();
    const file = {
      field: listName(field),
      // Without a name it is undefined, whatever its type says.
      name: (name ?? "").replace(CONTROLS, "").slice(0, FILE_NAME_CHARS_MAX),
      type: type.replace(CONTROLS, ""),
      bytes: 0,
    };
    files.push(file);
    stream.on("data", (piece: Uint8Array) => {
      if (isOver) return;
      file.bytes += piece.length;
      bytes += piece.length;
      pieces.push(piece);
      begun.resolve("file");
      wake();
    });
  });
  for (const event of ["partsLimit", "filesLimit", "fieldsLimit"] as const) {
    parser.once(event, () => refuse(tooManyParts()));
  }
  parser.on("error", () => refuse(malformed()));
  parser.once("finish", () => {
    isAtEnd = true;
    begun.resolve("end");
    wake();
  });

  return {
    fields,
    /** The files so far; the bytes of the last one may still grow. */
    files,
    /**
     * Resolves at the first byte of a file, at the end of the form, or when the client
     * has left.
     */
    begun: begun.promise,
    /**
     * Rejects, as `begun` does, with the `ApiError` for a form that is not acceptable;
     * else never settled.
     */
    failed: failed.promise,
    /**
     * The next bytes of the files, at most a piece of the bus; null at the end of the
     * form, or once it is over.
     */
    async next(): Promise<Uint8Array | null> {
      while (!isOver && !isAtEnd && bytes < pieceBytes) {
        const arrived = Promise.withResolvers<void>();
        wake = arrived.resolve;
        body.resume();
        await arrived.promise;
      }
      if (isOver || bytes === 0) return null;
      const all = Buffer.concat(pieces);
      const piece = all.subarray(0, pieceBytes);
      const rest = all.subarray(piece.length);
      pieces = rest.length === 0 ? [] : [rest];
      bytes = rest.length;
      return piece;
    },
    /**
     * Throws an `ApiError` if the form has fewer or more files of a name than it may
     * have.
     */
    requireFiles(): void {
      for (const [name, [min, max]] of Object.entries(bounds.files)) {
        const { length } = files.filter(({ field }) => field === name);
        if (length < min) {
          const message = `Missing required parameter: '${name}'.`;
          throw fieldError("missing_required_parameter", name, message);
        }
        const most = max === 1 ? "one file" : `at most ${max} files`;
        if (length > max) throw invalid("invalid_value", name, most);
      }
    },
    stop,
  };
}

/** `image[]` and `image` are the same field: the first has several values. */
const listName = (name: string) => name.replace(/\[\]$/, "");

function createParser(headers: Exchange["headers"], fileSize: number) {
  if (!isForm(headers)) throw wrongType();
  try {
    return new Busboy({
      headers: { "content-type": headers["content-type"] ?? "" },
      limits: {
        fileSize,
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
  readBody.refusal(
    "unsupported_media_type",
    "Unsupported 'Content-Type'. Send the body as 'multipart/form-data'.",
  );
const malformed = () =>
  readBody.refusal(
    "invalid_request",
    "We could not read the body of your request as multipart/form-data.",
  );
const tooManyParts = () =>
  readBody.refusal(
    "invalid_request",
    `The form has too many parts. The limit is ${UPLOAD_LIMITS.partsMax}, of ` +
      `which ${UPLOAD_LIMITS.filesMax} may be files.`,
  );
const tooLarge = (bytesMax: number) => readBody.tooLarge(bytesMax, "upload");

const invalid = (code: ErrorCode, name: string, expected: string) =>
  fieldError(code, name, `Invalid '${name}': expected ${expected}.`);
