/**
 * Reads `multipart/form-data` (RFC 7578) as it arrives: fields are kept, the bytes of
 * files are handed on in pieces, and a client is read only as fast as they are taken.
 */
import { Buffer } from "node:buffer";
import type { Readable } from "node:stream";
import type { UploadEnd } from "@gateway/shared/bus/job";
import { BODY_PIECES, BUS_LIMITS, UPLOAD_LIMITS } from "@gateway/shared/limits";
import {
  type ApiError,
  type ErrorCode,
  fieldError,
} from "@gateway/shared/openai/error";
import { type BodyExchange, discard } from "./exchange.ts";
import { BodyShare } from "./body_budget.ts";
import {
  createParser,
  type FieldEvent,
  type FileEvent,
  malformed,
  type Parser,
} from "./form_parser.ts";
import {
  BodyDeadline,
  type HeldBodyBounds,
  refusal,
  tooLarge,
  tooManyPieces,
} from "./read_body.ts";

/** What files a form may have. */
export interface FormBounds {
  /**
   * The fields that must be files, and how many there must be at least and at most.
   * Files of other names pass, too.
   */
  readonly files: Readonly<Record<string, readonly [min: number, max: number]>>;
  /** The size of one file, in bytes, by the fields so far. Beyond: 413. */
  fileBytesMax(fields: FormFields): number;
}

/** Text by field name, exactly as it was sent; a list for a name that came again. */
export interface FormFields {
  readonly [name: string]: string | readonly string[];
}

/** Whose form it is, and its bounds. */
export interface FormOptions {
  readonly keyId: string;
  readonly bounds: FormBounds;
  readonly budget: HeldBodyBounds;
  /** Sees the bytes of files as they arrive; absent: nobody needs to. */
  readonly onFileBytes?:
    | ((field: string, bytes: Uint8Array) => void)
    | undefined;
}

/** How a part of a form, or all of it, came to an end. */
export type FormProgress = "file" | "end" | "left";

type FormFile = UploadEnd["files"][number];

/** What an edge holds of a running upload: the pieces in flight, and the next one. */
const RUNNING_BYTES = (BUS_LIMITS.piecesInFlight + 1) * BUS_LIMITS.pieceBytes;
const FILE_NAME_CHARS_MAX = 200;
/** What all forms may have besides files without being counted. */
const FIELDS_FREE_BYTES = 64 * 1024;
const CONTROLS = /\p{Cc}/gu;

/**
 * A form that is being read. Call `stop` when nothing more of it is needed.
 *
 * At first it holds at most one piece of its files; once `mayRun` was called, also the
 * pieces on their way to a worker.
 */
export class Form {
  readonly #fields: Record<string, string | string[]> = Object.create(null);
  /** The files so far; the bytes of the last one may still grow. */
  readonly files: FormFile[] = [];
  readonly #options: FormOptions;
  readonly #budget: HeldBodyBounds;
  readonly #turns: BodyExchange["turns"];
  readonly #parser: Parser;
  readonly #share: BodyShare;
  readonly #deadline: BodyDeadline;
  readonly #body: Readable;
  readonly #beginning = Promise.withResolvers<FormProgress>();
  readonly #filled = Promise.withResolvers<FormProgress>();
  readonly #failed = Promise.withResolvers<never>();
  /** What has arrived of files and was not taken yet. */
  #pieces: Uint8Array[] = [];
  #bytes = 0;
  /** All bytes that have arrived, and in how many pieces. */
  #size = 0;
  #arrivals = 0;
  /** All bytes that may arrive. */
  readonly #sizeMax: number;
  /** The bytes of these that are of files. */
  #fileBytes = 0;
  /** Room for all others, which are kept. */
  #fieldRoom = FIELDS_FREE_BYTES;
  #isAtEnd = false;
  #isOver = false;
  /** Resolves when something has arrived; null unless somebody waits for that. */
  #arrival: PromiseWithResolvers<void> | null = null;
  /** Since when the next piece has been waited for; null: the client keeps up. */
  #waitingSinceMs: number | null = null;

  /**
   * Starts reading. Throws an `ApiError` for a form that says that it is too large, or
   * has no boundary, or finds no room.
   */
  constructor(
    { headers, openBody, turns }: BodyExchange,
    options: FormOptions,
  ) {
    this.#turns = turns;
    const { keyId, bounds, budget } = options;
    const { bytesMax, besidesFileBytesMax, totalMs } = UPLOAD_LIMITS;
    const largest = bounds.fileBytesMax(this.#fields) + besidesFileBytesMax;
    this.#sizeMax = Math.max(bytesMax, largest);
    if (Number(headers["content-length"] ?? 0) > this.#sizeMax) {
      throw uploadTooLarge(this.#sizeMax);
    }
    this.#options = options;
    this.#budget = budget;
    this.#parser = createParser(headers);
    const refuse = (error: ApiError) => this.#refuse(error);
    this.#share = new BodyShare(budget.bodyBudget, { keyId, refuse });
    this.#grow(BUS_LIMITS.pieceBytes);
    this.#deadline = new BodyDeadline(budget, { totalMs, refuse });
    // A rejection must not count as unhandled while it is not awaited.
    for (const { promise } of [this.#beginning, this.#filled, this.#failed]) {
      promise.catch(() => {});
    }
    this.#body = openBody();
    this.#listen();
  }

  /** The fields so far. */
  get fields(): FormFields {
    return this.#fields;
  }

  /**
   * Resolves at the first byte of a file, at the end of the form, or when the client
   * has left.
   */
  get beginning(): Promise<FormProgress> {
    return this.#beginning.promise;
  }

  /** As `beginning`, but only once a whole piece of a file is there. */
  get filled(): Promise<FormProgress> {
    return this.#filled.promise;
  }

  /**
   * Rejects, as `beginning` and `filled` do, with the `ApiError` for a form that is not
   * acceptable; else never settled.
   */
  get failed(): Promise<never> {
    return this.#failed.promise;
  }

  /** Takes the room for the pieces on their way. Throws an `ApiError` without it. */
  mayRun(): void {
    this.#grow(RUNNING_BYTES - BUS_LIMITS.pieceBytes);
  }

  /**
   * The next bytes of the files, at most a piece of the bus; null at the end of the
   * form, or once it is over.
   */
  async next(): Promise<Uint8Array | null> {
    const { pieceBytes } = BUS_LIMITS;
    this.#waitingSinceMs = this.#budget.now();
    while (!this.#isOver && !this.#isAtEnd && this.#bytes < pieceBytes) {
      this.#arrival = Promise.withResolvers<void>();
      this.#body.resume();
      await this.#arrival.promise;
    }
    this.#waitingSinceMs = null;
    if (this.#isOver || this.#bytes === 0) return null;
    return this.#take(Math.min(this.#bytes, pieceBytes));
  }

  /** How long the form has waited for the next piece, in ms. */
  lateMs(): number {
    const nowMs = this.#budget.now();
    return nowMs - (this.#waitingSinceMs ?? nowMs);
  }

  /**
   * Throws an `ApiError` if the form has fewer or more files of a name than it may
   * have, or larger ones, which is known when all fields have arrived.
   */
  requireFiles(): void {
    const fileBytesMax = this.#bounds.fileBytesMax(this.#fields);
    if (this.files.some(({ bytes }) => bytes > fileBytesMax)) {
      throw uploadTooLarge(fileBytesMax);
    }
    for (const [name, [min, max]] of Object.entries(this.#bounds.files)) {
      const { length } = this.files.filter(({ field }) => field === name);
      if (length < min) {
        const message = `Missing required parameter: '${name}'.`;
        throw fieldError("missing_required_parameter", name, message);
      }
      const most = max === 1 ? "one file" : `at most ${max} files`;
      if (length > max) throw invalid("invalid_value", name, most);
    }
  }

  /** Drops the rest of the form. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#deadline.remove();
    this.#share.release();
    discard(this.#body, this.#turns);
    this.#pieces = [];
    this.#bytes = 0;
    this.#wake();
  }

  get #bounds(): FormBounds {
    return this.#options.bounds;
  }

  /** A copy of this many bytes, which whoever gets it may free. */
  #take(length: number): Uint8Array {
    const bytes = Buffer.allocUnsafeSlow(length);
    let at = 0;
    for (const piece of this.#pieces.splice(0)) {
      const part = piece.subarray(0, length - at);
      bytes.set(part, at);
      at += part.length;
      if (part.length === piece.length) continue;
      this.#pieces.push(piece.subarray(part.length));
    }
    this.#bytes -= length;
    return bytes;
  }

  #grow(bytes: number): void {
    const noRoom = this.#budget.bodyBudget.grow(this.#share, bytes);
    if (noRoom !== null) throw noRoom;
  }

  #refuse(error: ApiError): void {
    if (this.#isOver) return;
    this.stop();
    for (const each of [this.#failed, this.#beginning, this.#filled]) {
      each.reject(error);
    }
  }

  #wake(): void {
    this.#arrival?.resolve();
    this.#arrival = null;
  }

  #listen(): void {
    const body = this.#body;
    body.on("data", (piece: Uint8Array) => this.#onData(piece));
    body.once("end", () => {
      if (!this.#isOver) this.#parser.end();
    });
    const onClose = () => {
      if (body.readableEnded) return;
      this.#reach("left");
      this.stop();
    };
    body.once("close", onClose);
    if (body.destroyed) onClose();
    const parser = this.#parser;
    parser.on("field", (...field) => this.#onField(field));
    parser.on("file", (...file) => this.#onFile(file));
    for (const event of ["partsLimit", "filesLimit", "fieldsLimit"] as const) {
      parser.once(event, () => this.#refuse(tooManyParts()));
    }
    parser.on("error", () => this.#refuse(malformed()));
    parser.once("finish", () => {
      this.#isAtEnd = true;
      this.#reach("end");
      this.#wake();
    });
  }

  /** Neither the first byte nor a whole piece need be waited for any more. */
  #reach(progress: "end" | "left"): void {
    this.#beginning.resolve(progress);
    this.#filled.resolve(progress);
  }

  #onData(piece: Uint8Array): void {
    if (this.#isOver) return;
    this.#size += piece.length;
    this.#arrivals += 1;
    if (this.#size > this.#sizeMax) {
      return this.#refuse(uploadTooLarge(this.#sizeMax));
    }
    const most = BODY_PIECES.free + this.#size / BODY_PIECES.bytesMin;
    if (this.#arrivals > most) return this.#refuse(tooManyPieces());
    this.#deadline.progressed();
    this.#parser.write(piece);
    if (this.#isOver || !this.#hasRoomForFields()) return;
    if (this.#bytes < BUS_LIMITS.pieceBytes) return;
    this.#body.pause();
    this.#filled.resolve("file");
  }

  /** Takes the room for fields while they arrive; without it, refuses the form. */
  #hasRoomForFields(): boolean {
    const fieldBytes = this.#size - this.#fileBytes;
    if (fieldBytes <= this.#fieldRoom) return true;
    const { fieldsBytesMax } = UPLOAD_LIMITS;
    if (fieldBytes > fieldsBytesMax) {
      this.#refuse(tooLarge(fieldsBytesMax, "upload without its files"));
      return false;
    }
    const more = Math.max(fieldBytes - this.#fieldRoom, BUS_LIMITS.pieceBytes);
    const noRoom = this.#budget.bodyBudget.grow(this.#share, more);
    if (noRoom !== null) this.#refuse(noRoom);
    this.#fieldRoom += more;
    return noRoom === null;
  }

  #onField([name, value, isNameCut, isCut]: FieldEvent): void {
    if (isNameCut || isCut) {
      const most = `at most ${UPLOAD_LIMITS.fieldBytesMax} bytes`;
      return this.#refuse(invalid("string_above_max_length", name, most));
    }
    const [filesMin = 0] = this.#bounds.files[listName(name)] ?? [];
    if (filesMin > 0) {
      const what = "a file, but got text";
      return this.#refuse(invalid("invalid_type", name, what));
    }
    const before = this.#fields[name];
    if (before === undefined) this.#fields[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else this.#fields[name] = [before, value];
  }

  #onFile([field, stream, name, _encoding, type]: FileEvent): void {
    const fileBytesMax = this.#bounds.fileBytesMax(this.#fields);
    stream.on("error", () => this.#refuse(malformed()));
    const file: FormFile = {
      field: this.#isFile(field) ? listName(field) : field,
      // Without a name it is undefined, whatever its type says.
      name: (name ?? "").replace(CONTROLS, "").slice(0, FILE_NAME_CHARS_MAX),
      type: type.replace(CONTROLS, ""),
      bytes: 0,
    };
    this.files.push(file);
    stream.on("data", (piece: Uint8Array) => {
      if (this.#isOver) return;
      file.bytes += piece.length;
      this.#fileBytes += piece.length;
      if (file.bytes > fileBytesMax) {
        return this.#refuse(uploadTooLarge(fileBytesMax));
      }
      this.#options.onFileBytes?.(file.field, piece);
      this.#bytes += piece.length;
      this.#pieces.push(piece);
      this.#beginning.resolve("file");
      this.#wake();
    });
  }

  #isFile(name: string): boolean {
    return Object.hasOwn(this.#bounds.files, listName(name));
  }
}

/** `image[]` and `image` are the same field: the first has several values. */
export const listName = (name: string): string => name.replace(/\[\]$/, "");

const tooManyParts = () =>
  refusal(
    "invalid_request",
    `The form has too many parts. The limit is ${UPLOAD_LIMITS.partsMax}, of ` +
      `which ${UPLOAD_LIMITS.filesMax} may be files.`,
  );
const uploadTooLarge = (bytesMax: number) => tooLarge(bytesMax, "upload");

const invalid = (code: ErrorCode, name: string, expected: string) =>
  fieldError(code, name, `Invalid '${name}': expected ${expected}.`);
