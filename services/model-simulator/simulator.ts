/** The simulator as an HTTP server: `/v1/chat/completions`, `/v1/models`, `/health`. */
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { type GracefulServer, serve } from "@gateway/shared/process/serve";
import { Completion, sleep } from "./completion.ts";
import { type Pace, readControls } from "./controls.ts";
import { HttpError, requestedError } from "./errors.ts";
import { parseRequest, textOf } from "./request.ts";

/** `broken`: by a requested fault; `left`: the client disconnected before the end. */
export type Outcome = "complete" | "refused" | "broken" | "left";

/** A chat completion request, as tests see it. */
export class SeenRequest {
  /** Undefined while it runs. */
  outcome: Outcome | undefined;
  readonly leaving = new AbortController();
  readonly #ended = Promise.withResolvers<Outcome>();
  /** Settles with the outcome. */
  readonly ended = this.#ended.promise;

  /** `body`: as received. */
  constructor(readonly body: string) {}

  /** The first outcome counts. */
  end(outcome: Outcome): void {
    if (this.outcome !== undefined) return;
    this.outcome = outcome;
    this.#ended.resolve(outcome);
    this.leaving.abort();
  }
}

export interface SimulatorOptions {
  hostname?: string;
  /** 0 or absent: any free port. */
  port?: number;
  pace?: Partial<Pace>;
  /** Called with each request for a completion once its body is read. Must not throw. */
  onRequest?: (request: SeenRequest) => void;
}

/** The largest body: somewhat more than the gateway accepts by default. */
const BODY_BYTES_MAX = 32 * 1024 * 1024;
const ABORT_MS = 1_000;
const JSON_TYPE = { "content-type": "application/json" };
const SSE_TYPE = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
};
const MODEL = {
  id: DEFAULT_MODEL_ID,
  object: "model",
  created: 1_767_225_600,
  owned_by: "simulator",
};

/** A running simulator. Disposing of it ends every answer. */
export class Simulator implements AsyncDisposable {
  readonly #options: SimulatorOptions;
  readonly #server: GracefulServer;

  constructor(options: SimulatorOptions = {}) {
    this.#options = options;
    this.#server = serve({
      hostname: options.hostname ?? "127.0.0.1",
      port: options.port ?? 0,
      handler: (request) => this.#answer(request),
      onError: (error) =>
        (error instanceof HttpError ? error : requestedError(500)).toResponse(),
    });
  }

  get port(): number {
    return this.#server.port;
  }

  /** `http://127.0.0.1:<port>/v1` */
  get url(): string {
    return `http://127.0.0.1:${this.port}/v1`;
  }

  /** Accepts no more requests, gives answers `graceMs` to end, then cuts them. */
  async stop(graceMs: number): Promise<void> {
    await this.#server.stop({ graceMs, abortMs: ABORT_MS });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop(0);
  }

  #answer(request: Request): Response | Promise<Response> {
    const path = new URL(request.url).pathname.replace(/\/$/, "");
    switch (`${request.method} ${path}`) {
      case "POST /v1/chat/completions":
        return this.#complete(request);
      case "GET /v1/models":
        return Response.json({ object: "list", data: [MODEL] });
      case `GET /v1/models/${MODEL.id}`:
        return Response.json(MODEL);
      case "GET /health":
        return Response.json({ status: "ok" });
      default:
        throw new HttpError("Not Found", { status: 404 });
    }
  }

  async #complete(request: Request): Promise<Response> {
    const run = new SeenRequest(await readBody(request));
    const { signal } = run.leaving;
    const cut = () => run.end("left");
    this.#server.stopping.addEventListener("abort", cut, { signal });
    this.#options.onRequest?.(run);
    try {
      return await respond(run, this.#options.pace ?? {});
    } catch (error) {
      run.end(signal.aborted ? "left" : "refused");
      throw error;
    }
  }
}

async function respond(
  run: SeenRequest,
  pace: Partial<Pace>,
): Promise<Response> {
  const { signal } = run.leaving;
  const request = parseRequest(run.body);
  if (request.model !== MODEL.id) {
    throw new HttpError(
      `The model \`${request.model.slice(0, 200)}\` does not exist.`,
      { status: 404, param: "model", code: "model_not_found" },
    );
  }
  // Only phrases in the last user message count.
  const asked = request.messages.findLast(({ role }) => role === "user");
  const controls = asked === undefined ? {} : readControls(textOf(asked));
  if (controls.errorStatus !== undefined) {
    await sleep(controls.pace?.firstTokenMs ?? 0, signal);
    throw requestedError(controls.errorStatus);
  }
  const completion = await Completion.start({
    request,
    controls,
    pace: { firstTokenMs: 0, tokensPerSecond: 0, ...pace, ...controls.pace },
    signal,
  });
  if (request.stream) {
    return send(run, completion, completion.stream(), SSE_TYPE);
  }
  const pieces = completion.whole();
  if (controls.break?.type === "fail") {
    for await (const _ of pieces);
    run.end("broken");
    throw requestedError(500);
  }
  return send(run, completion, pieces, JSON_TYPE);
}

/**
 * Sends the pieces as they are generated, and the head at once: only then does the
 * server notice when the client disconnects.
 */
function send(
  run: SeenRequest,
  completion: Completion,
  pieces: AsyncGenerator<string>,
  headers: Record<string, string>,
): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { value, done } = await pieces.next();
        if (done !== true) return controller.enqueue(encoder.encode(value));
      } catch (error) {
        run.end(completion.isBroken ? "broken" : "left");
        throw error;
      }
      run.end(completion.isBroken ? "broken" : "complete");
      controller.close();
    },
    cancel: () => run.end("left"),
  });
  return new Response(body, { headers });
}

async function readBody(request: Request): Promise<string> {
  const length = request.headers.get("content-length");
  if (length === null) throw new HttpError("Length required", { status: 411 });
  if (Number(length) <= BODY_BYTES_MAX) return await request.text();
  throw new HttpError("The request is too large.", { status: 413 });
}
