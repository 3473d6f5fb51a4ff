/** The simulator as an HTTP server: `/v1/chat/completions`, `/v1/models`, `/health`. */
import {
  type MonotonicNow,
  monotonicNow,
  wallNow,
} from "@gateway/shared/process/clock";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { type GracefulServer, serve } from "@gateway/shared/process/serve";
import { Completion, type Pace, sleep } from "./completion.ts";
import { type Controls, readControls } from "./controls.ts";
import { failureResponse, refusalResponse } from "./errors.ts";
import type { Random } from "./language.ts";
import {
  type ChatRequest,
  parseRequest,
  RequestError,
  textOf,
} from "./request.ts";

/** `broken`: by a fault on request; `left`: the client went away before the end. */
export type Outcome = "complete" | "refused" | "broken" | "left";

/** A chat completion that was asked for, as metrics and tests see it. */
export class SeenRequest {
  /** Undefined while it runs. */
  outcome: Outcome | undefined;
  /** `performance.now()` of the end, or null. */
  endedAtMs: number | null = null;
  /** What has made the tokens so far. */
  maker: { readonly tokens: number } = { tokens: 0 };
  /** 1 for the first. */
  readonly number: number;
  readonly headers: Headers;
  /** As it came. */
  readonly body: string;
  /** Settles with the outcome. */
  readonly ended: Promise<Outcome>;
  readonly leaving = new AbortController();
  readonly #settle: (outcome: Outcome) => void;

  constructor(number: number, headers: Headers, body: string) {
    this.number = number;
    this.headers = headers;
    this.body = body;
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    this.ended = promise;
    this.#settle = resolve;
  }

  /** Tokens made so far. */
  get tokens(): number {
    return this.maker.tokens;
  }

  /** The first outcome counts. */
  end(outcome: Outcome): void {
    if (this.outcome !== undefined) return;
    this.outcome = outcome;
    this.endedAtMs = performance.now();
    this.#settle(outcome);
    this.leaving.abort();
  }
}

export interface SimulatorOptions {
  hostname?: string;
  /** 0 or absent: any free one. */
  port?: number;
  pace?: Partial<Pace>;
  /** Names it answers to. */
  models?: readonly string[];
  now?: MonotonicNow;
  random?: Random;
  /** Called with each request for a completion once its body is read. Must not throw. */
  onRequest?: (request: SeenRequest) => void;
}

/** A running simulator. Disposing of it ends every answer. */
export interface Simulator extends AsyncDisposable {
  /** `http://127.0.0.1:<port>/v1` */
  readonly url: string;
  readonly port: number;
  /** Answers on their way. */
  readonly running: number;
  /** Takes no more requests, lets answers end for so long, then cuts them. */
  stop(graceMs: number): Promise<void>;
}

/** The largest body: what the gateway takes, and some. */
const BODY_BYTES_MAX = 32 * 1024 * 1024;
const CREATED = 1_767_225_600;
const LAST_WORD_MS = 1_000;
const JSON_TYPE = { "content-type": "application/json" };
const SSE_TYPE = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
};

/** Starts to listen. */
export function startSimulator(options: SimulatorOptions = {}): Simulator {
  const app = new App(options);
  const server: GracefulServer = serve({
    hostname: options.hostname ?? "127.0.0.1",
    port: options.port ?? 0,
    handler: (request) => app.answer(request),
    onError: () => failureResponse(500),
  });
  const stop = async (graceMs: number) => {
    server.stopping.addEventListener("abort", () => app.cutAll());
    await server.stop({ graceMs, lastWordMs: LAST_WORD_MS });
  };
  return {
    url: `http://127.0.0.1:${server.port}/v1`,
    port: server.port,
    get running() {
      return app.running.size;
    },
    stop,
    [Symbol.asyncDispose]: () => stop(0),
  };
}

class App {
  readonly running = new Set<SeenRequest>();
  readonly #options: SimulatorOptions;
  readonly #models: readonly string[];
  #count = 0;

  constructor(options: SimulatorOptions) {
    this.#options = options;
    this.#models = options.models ?? [DEFAULT_MODEL_ID];
  }

  cutAll(): void {
    for (const run of this.running) run.end("left");
  }

  async answer(request: Request): Promise<Response> {
    const path = new URL(request.url).pathname.replace(/\/$/, "");
    try {
      if (path === "/v1/chat/completions" && request.method === "POST") {
        return await this.#complete(request);
      }
      if (request.method === "GET") return this.#get(path);
    } catch (error) {
      if (error instanceof RequestError) return refusalResponse(error);
      throw error;
    }
    return refusalResponse(new RequestError("Not Found", { status: 404 }));
  }

  #get(path: string): Response {
    if (path === "/health") return Response.json({ status: "ok" });
    const models = this.#models.map((id) => ({
      id,
      object: "model",
      created: CREATED,
      owned_by: "simulator",
    }));
    if (path === "/v1/models") {
      return Response.json({ object: "list", data: models });
    }
    const id = path.startsWith("/v1/models/")
      ? decodeURIComponent(path.slice("/v1/models/".length))
      : null;
    const model = models.find((one) => one.id === id);
    if (model !== undefined) return Response.json(model);
    throw new RequestError("Not Found", { status: 404 });
  }

  async #complete(request: Request): Promise<Response> {
    const body = await readBody(request);
    const run = new SeenRequest(this.#count += 1, request.headers, body);
    this.running.add(run);
    void run.ended.then(() => this.running.delete(run));
    this.#options.onRequest?.(run);
    try {
      return await this.#respond(run);
    } catch (error) {
      run.end(run.leaving.signal.aborted ? "left" : "refused");
      throw error;
    }
  }

  async #respond(run: SeenRequest): Promise<Response> {
    const { now = monotonicNow, random = Math.random, pace } = this.#options;
    const { signal } = run.leaving;
    const request = parseRequest(run.body);
    if (!this.#models.includes(request.model)) {
      throw new RequestError(
        `The model \`${request.model.slice(0, 200)}\` does not exist.`,
        { status: 404, param: "model", code: "model_not_found" },
      );
    }
    const controls = controlsOf(request);
    if (controls.errorStatus !== undefined) {
      await sleep(controls.firstTokenMs ?? 0, signal);
      run.end("refused");
      return failureResponse(
        controls.errorStatus,
        controls.isDetail ?? false,
      );
    }
    const completion = await Completion.start({
      request,
      controls,
      pace: { firstTokenMs: 0, tokensPerSecond: 0, ...pace },
      signal,
      now,
      random,
      created: Math.floor(wallNow() / 1_000),
    });
    run.maker = completion;
    return request.stream === true
      ? respond(run, completion, completion.stream(), SSE_TYPE)
      : await whole(run, completion, controls.break?.type === "fail");
  }
}

/** Phrases count in the last message of the user. */
function controlsOf({ messages }: ChatRequest): Controls {
  const message = messages.findLast(({ role }) => role === "user");
  return message === undefined ? {} : readControls(textOf(message));
}

async function whole(
  run: SeenRequest,
  completion: Completion,
  isFailing: boolean,
): Promise<Response> {
  const pieces = completion.whole();
  if (isFailing) {
    for await (const _ of pieces);
    run.end("broken");
    return failureResponse(500);
  }
  if (!completion.isInstant) return respond(run, completion, pieces, JSON_TYPE);
  const { value } = await pieces.next();
  run.end("complete");
  return new Response(value, { headers: JSON_TYPE });
}

/**
 * The pieces as they come. The head goes out at once: only then does the server see
 * a client leave.
 */
function respond(
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
  const announced = request.headers.get("content-length");
  if (announced !== null && Number(announced) <= BODY_BYTES_MAX) {
    return await request.text();
  }
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of request.body ?? []) {
    length += piece.length;
    if (length > BODY_BYTES_MAX) {
      throw new RequestError("The request is too large.", { status: 413 });
    }
    pieces.push(piece);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return new TextDecoder().decode(bytes);
}
