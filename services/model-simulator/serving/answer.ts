/** A request for generated content, from its body to the last byte of the answer. */
import { Buffer } from "node:buffer";
import { setTimeout } from "node:timers/promises";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { Controls, Pace } from "./controls.ts";
import { requestedError } from "./errors.ts";

/** `broken`: by a requested fault; `left`: the client disconnected before the end. */
export type Outcome = "complete" | "refused" | "broken" | "left";

/** A request for generated content, as tests see it. */
export class SeenRequest {
  /** Undefined while it runs. */
  outcome: Outcome | undefined;
  readonly leaving = new AbortController();
  readonly #ended = Promise.withResolvers<Outcome>();
  readonly ended = this.#ended.promise;

  /** `body`: as received; of a form, its fields as JSON, files by name. */
  constructor(readonly path: string, readonly body: string) {}

  /** The first outcome counts. */
  end(outcome: Outcome): void {
    if (this.outcome !== undefined) return;
    this.outcome = outcome;
    this.#ended.resolve(outcome);
    this.leaving.abort();
  }
}

/** Pieces that are due at the same time. */
type Batches<Piece> = AsyncGenerator<Piece[]>;

export interface Planned {
  readonly controls: Controls;
  /** Rejects with an `HttpError` for what the simulator does not support. */
  readonly answer: (pacing: Pacing) => Answer | Promise<Answer>;
}

export interface Answer {
  readonly status?: number;
  readonly contentType: string;
  readonly headers?: Record<string, string>;
  readonly pieces: Batches<string | Uint8Array>;
  /** Makes what follows the last piece. */
  readonly end?: () => string;
}

const EVENT_STREAM = "text/event-stream; charset=utf-8";
const BREAK_PAUSE_MS = 50;
/** Practically forever. */
const STALL_MS = 24 * 60 * 60 * 1_000;
const GARBAGE = "data: <html>502 Bad Gateway</html>\n\n";
/** The longest time it works before it yields to the event loop. */
const WORK_MS_MAX = 2;

/** When the pieces of an answer are sent, and how it fails on request. */
export class Pacing {
  isBroken = false;

  constructor(
    readonly controls: Controls,
    /** Aborted when the client has disconnected. */
    readonly signal: AbortSignal,
  ) {}

  /** The pieces as they become due, one for each token, until they end or the answer breaks. */
  async *run<Piece>(pieces: Iterable<Piece>): Batches<Piece> {
    const { firstTokenMs = 0, tokensPerSecond = 0, break: fault } =
      this.controls;
    const stepMs = tokensPerSecond === 0 ? 0 : 1_000 / tokensPerSecond;
    let startedAt = monotonicNow();
    let dueAt = startedAt + firstTokenMs;
    let batch: Piece[] = [];
    let count = 0;
    for (const piece of pieces) {
      if (count === fault?.afterTokens) break;
      const now = monotonicNow();
      if (dueAt > now || now - startedAt >= WORK_MS_MAX) {
        if (batch.length > 0) yield batch;
        await sleep(dueAt - monotonicNow(), this.signal);
        batch = [];
        startedAt = monotonicNow();
      }
      batch.push(piece);
      count += 1;
      dueAt += stepMs;
    }
    if (batch.length > 0) yield batch;
    if (count === fault?.afterTokens) await this.#break(fault);
  }

  /** Ends the connection, never settles, or leaves {@link faultText} to be sent. */
  async #break({ type }: NonNullable<Controls["break"]>): Promise<void> {
    // Lets the client read what was sent before the fault.
    await sleep(BREAK_PAUSE_MS, this.signal);
    this.isBroken = true;
    if (type === "cut") throw new Error("Cut on request");
    if (type === "stall") await sleep(STALL_MS, this.signal);
  }

  get faultText(): string {
    return this.controls.break?.type === "fail"
      ? `data: ${JSON.stringify(requestedError(500).body)}\n\n`
      : GARBAGE;
  }
}

/** Waits for at least one turn of the event loop. Rejects when the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return setTimeout(Math.max(0, ms), undefined, signal && { signal });
}

/** One event of a stream, named as OpenAI names those of media. */
export function eventText(type: string, members: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;
}

export function eventAnswer(
  pieces: Batches<string>,
  end?: () => string,
): Answer {
  return { contentType: EVENT_STREAM, pieces, ...end && { end } };
}

/** An answer that is sent when all its pieces are made, by default as JSON. */
export function wholeAnswer(
  pieces: Batches<unknown>,
  end: () => string,
  contentType = "application/json",
): Answer {
  async function* silence(): Batches<string> {
    for await (const _ of pieces);
    yield [];
  }
  return { contentType, pieces: silence(), end };
}

/** Sends the answer at its pace, or fails as the phrases for the simulator say. */
export async function respond(
  run: SeenRequest,
  { controls, answer }: Planned,
  pace: Partial<Pace>,
): Promise<Response> {
  const { signal } = run.leaving;
  if (controls.errorStatus !== undefined) {
    await sleep(controls.firstTokenMs ?? 0, signal);
    throw requestedError(controls.errorStatus);
  }
  const pacing = new Pacing({ ...pace, ...controls }, signal);
  const made = await answer(pacing);
  const { contentType, status = 200, headers } = made;
  if (controls.break?.type === "fail" && contentType !== EVENT_STREAM) {
    for await (const _ of made.pieces);
    run.end("broken");
    throw requestedError(500);
  }
  const all = { "content-type": contentType, "cache-control": "no-cache" };
  const body = bodyOf(made, run, pacing);
  return new Response(body, { status, headers: { ...all, ...headers } });
}

/** Sends the head at once: only then does the server notice when the client disconnects. */
function bodyOf(
  { pieces, end = () => "" }: Answer,
  run: SeenRequest,
  pacing: Pacing,
) {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { value, done } = await pieces.next();
        const last = () => pacing.isBroken ? pacing.faultText : end();
        const bytes = (done ? [last()] : value).map((piece) =>
          typeof piece === "string" ? encoder.encode(piece) : piece
        );
        controller.enqueue(Buffer.concat(bytes));
        if (done !== true) return;
      } catch (error) {
        run.end(pacing.isBroken ? "broken" : "left");
        throw error;
      }
      run.end(pacing.isBroken ? "broken" : "complete");
      controller.close();
    },
    async cancel() {
      run.end("left");
      await pieces.return(undefined);
    },
  });
}
