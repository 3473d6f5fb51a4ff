import { STREAM_LIMITS } from "@gateway/shared/limits";
import { createSseParser, SseLimitError } from "@gateway/shared/sse_parser";
import type { BackendEvent } from "../backend.ts";
import type { HttpResponse } from "../http/response.ts";
import {
  invalidAnswer,
  UpstreamError,
  type UpstreamFault,
} from "../upstream_error.ts";
import type { ChunkReader } from "./chunk_reader.ts";

const DONE = "[DONE]";

/** What one read of an event stream brought. */
export interface StreamStep {
  /** In order; may be empty, for example for comments. */
  events: BackendEvent[];
  /** Something other than comments came. */
  isProgress: boolean;
  /** The answer is complete, usage included. */
  isLast: boolean;
  /** What is wrong with the rest: to be thrown after the events before it. */
  error: unknown;
}

/** An answer in an event stream. */
export interface StreamAnswer {
  /** Reads once. Never rejects: see {@link StreamStep.error}. */
  next(): Promise<StreamStep>;
}

/**
 * Reads an event stream to `[DONE]`, or to its end when a server leaves that
 * out. Once every choice is finished a stream that breaks off is complete too:
 * the client has all of its answer, and usage is estimated.
 */
export function createStreamAnswer(
  response: HttpResponse,
  reader: ChunkReader,
  /** Beyond it the answer is refused. */
  bytesMax: number,
): StreamAnswer {
  let bytes = 0;
  let step = emptyStep();
  let isDone = false;
  /** The server has said so, and has not just stopped. */
  let isWhole = false;
  const parser = createSseParser({
    lineBytesMax: STREAM_LIMITS.lineBytesMax,
    onEvent(data, name) {
      if (isDone || data === "") return;
      step.isProgress = true;
      if (data.length < 16 && data.trim() === DONE) isDone = isWhole = true;
      else reader.take(data, name, step.events);
    },
  });

  const takePiece = (piece: Uint8Array | null) => {
    if (piece !== null) {
      bytes += piece.length;
      if (bytes > bytesMax) {
        throw invalidAnswer(`Answer over ${bytesMax} bytes`);
      }
      return parser.push(piece);
    }
    const rest = parser.end();
    // Without its blank line an event may be cut: then the end of the stream, not the event, is at fault.
    if (rest?.trim() === DONE) isWhole = true;
    else if (rest !== null && isJson(rest)) {
      reader.take(rest, "", step.events);
    }
    isDone = true;
  };

  const end = () => {
    reader.end(step.events, isWhole);
    step.isLast = true;
    response.release();
  };

  return {
    async next() {
      step = emptyStep();
      try {
        takePiece(await response.read());
        if (isDone) end();
      } catch (error) {
        if (reader.isFinished && isCut(error)) end();
        else step.error = named(error);
      }
      return step;
    },
  };
}

function emptyStep(): StreamStep {
  return { events: [], isProgress: false, isLast: false, error: undefined };
}

/** Ways to break off or fall silent, as opposed to saying something wrong. */
const CUTS: ReadonlySet<UpstreamFault> = new Set([
  "truncated",
  "timeout",
  "deadline",
]);

function isCut(error: unknown): boolean {
  return error instanceof UpstreamError && CUTS.has(error.fault);
}

function named(error: unknown): unknown {
  return error instanceof SseLimitError ? invalidAnswer(error.message) : error;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
