/**
 * How long a recording may be, by its file: so that budgets hold what its transcription
 * may cost. What it does cost, the worker says.
 */
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { FileMeter } from "../../requests/endpoint.ts";
import { readFlac } from "./flac.ts";
import { readMp3 } from "./mp3.ts";
import { readMp4 } from "./mp4.ts";
import { readOgg } from "./ogg.ts";
import { type Length, type Reading, UNKNOWN, type Want } from "./reading.ts";
import { readWav } from "./wav.ts";

/**
 * The fewest bytes that a second usually takes: 16 kbit/s, as speech in Opus. So it
 * bounds the length of a recording that does not say it.
 */
const BYTES_PER_SECOND_MIN = 2_000;
/**
 * The most that a second of compressed sound usually takes: that of 16-bit samples, of
 * two channels at 48 kHz. So no file passes for much shorter than it is by what its
 * head says.
 */
const BYTES_PER_SECOND_MAX = 192_000;
/** After this many parts of a file, as no recording has, its length is not known. */
const WANTS_MAX = 100_000;

const BEGINNING_BYTES = 12;
/** Marks in front of an MP3 or FLAC file, with a head of ten bytes. */
const MARKS = { name: "ID3", headBytes: 10, sizeAt: 6 } as const;

/** Measures a file whose bytes it is given, and keeps none of them. */
export class RecordingMeter implements FileMeter {
  readonly #reading = readRecording();
  /** Null: it has read what it needs. */
  #want: Want | null = null;
  /** What has come of that. */
  #part = Buffer.alloc(0);
  #partBytes = 0;
  #wants = 0;
  #length: Length = UNKNOWN;
  #fileBytes = 0;

  constructor() {
    this.#goOn(this.#part);
  }

  add(bytes: Uint8Array): void {
    const start = this.#fileBytes;
    this.#fileBytes += bytes.length;
    while (this.#want !== null) {
      const { at, length } = this.#want;
      const from = at + this.#partBytes - start;
      if (from >= bytes.length && length > this.#partBytes) return;
      const rest = bytes.subarray(from, from + length - this.#partBytes);
      this.#part.set(rest, this.#partBytes);
      this.#partBytes += rest.length;
      if (this.#partBytes < length) return;
      this.#goOn(this.#part);
    }
  }

  /** Returns whole seconds, at least one. */
  units(): number {
    while (this.#want !== null) {
      this.#goOn(this.#part.subarray(0, this.#partBytes));
    }
    const seconds = this.#length(this.#fileBytes) ??
      this.#fileBytes / BYTES_PER_SECOND_MIN;
    return Math.max(1, Math.min(Math.ceil(seconds), MEDIA_LIMITS.secondsMax));
  }

  #goOn(part: Buffer): void {
    const { done, value } = this.#reading.next(part);
    this.#wants += 1;
    this.#partBytes = 0;
    if (done) this.#length = value;
    this.#want = done || this.#wants > WANTS_MAX ? null : value;
    this.#part = Buffer.alloc(this.#want?.length ?? 0);
  }
}

function* readRecording(): Reading {
  let beginning = yield { at: 0, length: BEGINNING_BYTES };
  if (beginning.length < BEGINNING_BYTES) return UNKNOWN;
  let at = 0;
  while (textAt(beginning, 0).startsWith(MARKS.name)) {
    const end = at + MARKS.headBytes + sizeOfMarks(beginning);
    at = Math.max(at + BEGINNING_BYTES, end);
    beginning = yield { at, length: BEGINNING_BYTES };
    if (beginning.length < BEGINNING_BYTES) return UNKNOWN;
  }
  const isRiff = at === 0 && /^(RIFF|RF64)$/.test(textAt(beginning, 0));
  if (isRiff && textAt(beginning, 8) === "WAVE") return yield* readWav();
  const length = yield* readCompressed(at, beginning);
  return (fileBytes) => {
    const seconds = length(fileBytes);
    return seconds === null
      ? null
      : Math.max(seconds, fileBytes / BYTES_PER_SECOND_MAX);
  };
}

function readCompressed(at: number, beginning: Buffer): Reading {
  if (textAt(beginning, 0) === "fLaC") return readFlac(at);
  if (at > 0) return readMp3(at, beginning);
  if (textAt(beginning, 0) === "OggS") return readOgg(beginning);
  if (textAt(beginning, 4) === "ftyp") return readMp4(beginning);
  return readMp3(at, beginning);
}

const textAt = (bytes: Buffer, at: number) =>
  bytes.toString("latin1", at, at + 4);

/** Returns the size of the marks, of which seven bits of each of four bytes count. */
function sizeOfMarks(head: Buffer): number {
  return head.subarray(MARKS.sizeAt, MARKS.headBytes)
    .reduce((size, byte) => size * 128 + (byte & 127), 0);
}
