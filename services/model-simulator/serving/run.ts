/** A request for generated content, from its body to the last byte of the answer. */
import type { Controls, Pace } from "./controls.ts";
import { requestedError } from "./errors.ts";
import { Pacing, sleep } from "./pacing.ts";

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

export const EVENT_STREAM = "text/event-stream; charset=utf-8";

/** One event of a stream, named as OpenAI names those of media. */
export function eventText(type: string, members: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;
}

export interface Planned {
  readonly controls: Controls;
  /** Rejects with an `HttpError` for what the simulator does not support. */
  readonly answer: (pacing: Pacing) => Answer | Promise<Answer>;
}

export interface Answer {
  readonly status?: number;
  readonly contentType: string;
  readonly headers?: Record<string, string>;
  readonly pieces: AsyncGenerator<string | Uint8Array<ArrayBuffer>>;
}

/** An answer that is sent when all its pieces are made, by default as JSON. */
export function wholeAnswer(
  pacing: Pacing,
  pieces: Iterable<unknown>,
  body: () => string,
  contentType = "application/json",
): Answer {
  async function* made(): AsyncGenerator<string> {
    for await (const _ of pacing.run(pieces));
    yield pacing.isBroken ? pacing.faultText : body();
  }
  return { contentType, pieces: made() };
}

/** An answer of events; `end` makes what follows the last one. */
export function eventAnswer(
  pacing: Pacing,
  events: AsyncIterable<string>,
  end: () => string = () => "",
): Answer {
  return { contentType: EVENT_STREAM, pieces: pacing.ending(events, end) };
}

/** Sends the answer at its pace, or fails as the phrases for the simulator say. */
export async function respond(
  run: SeenRequest,
  { controls, answer }: Planned,
  pace: Partial<Pace>,
): Promise<Response> {
  const { signal } = run.leaving;
  if (controls.errorStatus !== undefined) {
    await sleep(controls.pace?.firstTokenMs ?? 0, signal);
    throw requestedError(controls.errorStatus);
  }
  const pacing = new Pacing({
    controls,
    pace: { firstTokenMs: 0, tokensPerSecond: 0, ...pace, ...controls.pace },
    signal,
  });
  const { contentType, pieces, status = 200, headers } = await answer(pacing);
  if (controls.break?.type === "fail" && contentType !== EVENT_STREAM) {
    for await (const _ of pieces);
    run.end("broken");
    throw requestedError(500);
  }
  const all = { "content-type": contentType, "cache-control": "no-cache" };
  const body = bodyOf(pieces, run, pacing);
  return new Response(body, { status, headers: { ...all, ...headers } });
}

/** Sends the head at once: only then does the server notice when the client disconnects. */
function bodyOf(pieces: Answer["pieces"], run: SeenRequest, pacing: Pacing) {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      try {
        const { value, done } = await pieces.next();
        if (done !== true) {
          return controller.enqueue(
            typeof value === "string" ? encoder.encode(value) : value,
          );
        }
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
