/** A request for generated content, from its body to the last byte of the answer. */
import { Buffer } from "node:buffer";
import { setTimeout } from "node:timers/promises";
import { monotonicNow } from "@gateway/shared/process/clock";
import { type Controls, type Pace, requestedError } from "./controls.ts";

/** `broken`: by a requested fault; `left`: the client disconnected before the end. */
export type Outcome = "complete" | "refused" | "broken" | "left";

/** A request for generated content, as tests see it. */
export class SeenRequest {
  /** Aborted when the answer has ended in any way. */
  readonly leaving = new AbortController();
  readonly #outcome = Promise.withResolvers<Outcome>();
  /** Resolves when the answer has ended. */
  readonly outcome = this.#outcome.promise;

  /** `body`: as received; of a form, its fields as JSON, files by name. */
  constructor(readonly request: Request, readonly body: string) {}

  /** The first outcome counts. */
  end(outcome: Outcome): void {
    this.#outcome.resolve(outcome);
    this.leaving.abort();
  }
}

/** An answer, and how it is to be sent. */
export interface Planned {
  readonly controls: Controls;
  readonly status?: number;
  readonly contentType: string;
  readonly headers?: Record<string, string>;
  /** One for each token, made when it is due. */
  readonly pieces: Iterable<string | Uint8Array>;
  /** Makes what follows the last piece. */
  readonly end?: () => string | Uint8Array;
  /** The event of a requested failure. Default: OpenAI's. */
  readonly failure?: string;
}

const EVENT_STREAM = "text/event-stream; charset=utf-8";
const BREAK_PAUSE_MS = 50;
/** Practically forever. */
const STALL_MS = 24 * 60 * 60 * 1_000;
const FAILURE = `data: ${JSON.stringify(requestedError(500).toBody())}\n\n`;
const GARBAGE = "data: <html>502 Bad Gateway</html>\n\n";
/** The longest time it works before it yields to the event loop. */
const WORK_MS_MAX = 2;

/**
 * The bytes of pieces that are due at the same time, until the answer ends, or breaks
 * as requested.
 */
export async function* batchesOf(
  { pieces, end = () => "", controls, failure = FAILURE }: Planned,
  run: SeenRequest,
): AsyncGenerator<Uint8Array> {
  const { firstTokenMs = 0, tokensPerSecond = 0, break: fault } = controls;
  const { signal } = run.leaving;
  const stepMs = tokensPerSecond === 0 ? 0 : 1_000 / tokensPerSecond;
  let startedAt = monotonicNow();
  let dueAt = startedAt + firstTokenMs;
  let batch: Buffer[] = [];
  let count = 0;
  try {
    for (const piece of pieces) {
      if (count === fault?.afterTokens) break;
      const now = monotonicNow();
      if (dueAt > now || now - startedAt >= WORK_MS_MAX) {
        if (batch.length > 0) yield Buffer.concat(batch);
        await sleep(dueAt - monotonicNow(), signal);
        batch = [];
        startedAt = monotonicNow();
      }
      batch.push(Buffer.from(piece));
      count += 1;
      dueAt += stepMs;
    }
    if (batch.length > 0) yield Buffer.concat(batch);
    if (count !== fault?.afterTokens) {
      yield Buffer.from(end());
      return run.end("complete");
    }
    // Lets the client read what was sent before the fault.
    await sleep(BREAK_PAUSE_MS, signal);
    if (fault.type === "stall") await sleep(STALL_MS, signal);
    run.end("broken");
    if (fault.type === "cut") throw new Error("Cut on request");
    yield Buffer.from(fault.type === "fail" ? failure : GARBAGE);
  } finally {
    run.end("left");
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

/** An answer as a stream of events. */
export function eventAnswer(
  controls: Controls,
  pieces: Iterable<string>,
  rest: Pick<Planned, "end" | "failure"> = {},
): Planned {
  return { controls, contentType: EVENT_STREAM, pieces, ...rest };
}

/** What {@link wholeAnswer} sends, and when. */
export interface WholeContent {
  /** The work before the body is known; each piece takes the time of a token. */
  pieces: Iterable<unknown>;
  /** Makes the body. */
  end: () => string;
  /** Default: JSON. */
  contentType?: string | undefined;
}

/** An answer that is sent when all its pieces are made. */
export function wholeAnswer(
  controls: Controls,
  { pieces, end, contentType = "application/json" }: WholeContent,
): Planned {
  const silence = Iterator.from(pieces).map(() => "");
  return { controls, contentType, pieces: silence, end };
}

/** Sends the answer at its pace, or fails as the phrases for the simulator say. */
export async function respond(
  run: SeenRequest,
  { controls: own, ...planned }: Planned,
  pace: Partial<Pace>,
): Promise<Response> {
  const { errorStatus, firstTokenMs = 0 } = own;
  if (errorStatus !== undefined) {
    await sleep(firstTokenMs, run.leaving.signal);
    throw requestedError(errorStatus);
  }
  const controls = { ...pace, ...own };
  const batches = batchesOf({ ...planned, controls }, run);
  const { contentType, status = 200, headers } = planned;
  if (controls.break?.type === "fail" && contentType !== EVENT_STREAM) {
    for await (const _ of batches);
    throw requestedError(500);
  }
  const all = { "content-type": contentType, "cache-control": "no-cache" };
  const init = { status, headers: { ...all, ...headers } };
  // Sends the head at once: only then does the server notice when the client
  // disconnects.
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { value, done } = await batches.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => run.end("left"),
  });
  return new Response(body, init);
}
