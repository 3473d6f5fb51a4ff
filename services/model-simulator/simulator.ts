/** The simulator as an HTTP server: OpenAI's endpoints, Anthropic's, and `/health`. */
import { anthropicBody } from "@gateway/shared/forward/envelope";
import { ApiError } from "@gateway/shared/openai/error";
import { type WallNow, wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { serve } from "@gateway/shared/process/lifecycle/serve";
import { countTokens, messages } from "./agents/messages.ts";
import { inputTokens, responses } from "./agents/responses.ts";
import { chatCompletion } from "./chat/completion.ts";
import type { Videos } from "./media/videos.ts";
import { type Planned, respond, SeenRequest } from "./serving/answer.ts";
import { type Pace, requestedError } from "./serving/controls.ts";
import { MODEL_IDS, receive, type Received } from "./serving/fields.ts";
import { PromptCache } from "./serving/prompt_cache.ts";
import { completions } from "./text/completions.ts";
import { embed } from "./text/embeddings.ts";
import { rerank } from "./text/rerank.ts";

/** What {@link serveSimulator} takes. */
export interface SimulatorOptions {
  hostname?: string;
  /** 0 or absent: any free port. */
  port?: number;
  /** Default: without pauses. Phrases of a request override it. */
  pace?: Partial<Pace>;
  /**
   * Called with each request for generated content once its body is read. Must not
   * throw.
   */
  onRequest?: (request: SeenRequest) => void;
  /** The clock of videos. Default: the wall clock. */
  now?: WallNow;
}

const ABORT_MS = 1_000;
const MODELS = Object.values(MODEL_IDS).map((id) => ({
  id,
  object: "model",
  created: 1_767_225_600,
  owned_by: "simulator",
}));

type Planner = (
  received: Received,
  cache: PromptCache,
) => Planned | Promise<Planned>;

/** Below it, errors have Anthropic's form. */
const MESSAGES = "/v1/messages";

/** What generates content. Only a request for media loads the code that makes them. */
const PLANNERS: Readonly<Record<string, Planner>> = {
  "/v1/chat/completions": chatCompletion,
  "/v1/completions": completions,
  [MESSAGES]: messages,
  [`${MESSAGES}/count_tokens`]: countTokens,
  "/v1/responses": responses,
  "/v1/responses/input_tokens": inputTokens,
  "/v1/embeddings": embed,
  "/v1/rerank": rerank,
  "/v1/audio/speech": async (received) =>
    (await import("./media/speech.ts")).speech(received),
  "/v1/audio/transcriptions": async (received) =>
    (await import("./media/transcription.ts")).transcribe(received),
  "/v1/audio/translations": async (received) =>
    (await import("./media/transcription.ts")).transcribe(
      received,
      "translate",
    ),
  "/v1/images/generations": async (received) =>
    (await import("./media/images.ts")).generations(received),
  "/v1/images/edits": async (received) =>
    (await import("./media/images.ts")).edits(received),
};

/** A running simulator. Disposing of it ends every answer. */
export interface RunningSimulator extends AsyncDisposable {
  readonly port: number;
  /** `http://127.0.0.1:<port>/v1` */
  readonly url: string;
  /** Accepts no more requests, gives answers `graceMs` to end, then cuts them. */
  stop(graceMs: number): Promise<void>;
}

/** Starts a simulator. Throws `Deno.errors.AddrInUse` if the port is taken. */
export function serveSimulator(
  { hostname = "127.0.0.1", port = 0, ...options }: SimulatorOptions = {},
): RunningSimulator {
  const simulator = new Simulator(options, () => server.stopping);
  const server = serve({
    hostname,
    port,
    handler: (request) => simulator.handle(request),
    onError: errorResponse,
  });
  const stop = (graceMs: number) => server.stop({ graceMs, abortMs: ABORT_MS });
  return {
    port: server.port,
    url: `http://127.0.0.1:${server.port}/v1`,
    stop,
    [Symbol.asyncDispose]: () => stop(0),
  };
}

/** The answer to a request that was refused, or failed. */
function errorResponse(fault: unknown): Response {
  const error = fault instanceof ApiError ? fault : requestedError(500);
  return refusal(error, error.toBody());
}

/** The same in Anthropic's form. */
function messagesErrorResponse(error: ApiError): Response {
  const requestId = `req_${newRequestId()}`;
  const { message } = error;
  return refusal(error, anthropicBody(error, { message, requestId }));
}

function refusal({ status, retryAfterMs }: ApiError, body: object): Response {
  const headers = retryAfterMs === null ? {} : { "retry-after": "1" };
  return Response.json(body, { status, headers });
}

/**
 * Answers requests; its jobs of videos and the beginnings of prompts are all that it
 * remembers.
 */
class Simulator {
  readonly #options: Omit<SimulatorOptions, "hostname" | "port">;
  readonly #stopping: () => AbortSignal;
  readonly #cache = new PromptCache();
  #videos: Videos | undefined;

  constructor(
    options: Omit<SimulatorOptions, "hostname" | "port">,
    stopping: () => AbortSignal,
  ) {
    this.#options = options;
    this.#stopping = stopping;
  }

  /** Throws, or rejects with, an `ApiError` for a wrong request. */
  handle(request: Request): Response | Promise<Response> {
    const path = new URL(request.url).pathname.replace(/\/$/, "");
    const planner = PLANNERS[path];
    if (request.method === "POST" && planner !== undefined) {
      const answer = this.#generate(request, planner);
      if (!path.startsWith(MESSAGES)) return answer;
      return answer.catch((fault) => {
        if (fault instanceof ApiError) return messagesErrorResponse(fault);
        throw fault;
      });
    }
    if (/^\/v1\/videos(\/|$)/.test(path)) {
      return this.#generate(request, async (received) => {
        const { Videos } = await import("./media/videos.ts");
        this.#videos ??= new Videos(this.#options.now ?? wallNow);
        return await this.#videos.plan(request, received);
      });
    }
    if (request.method === "GET") {
      if (path === "/health") return Response.json({ status: "ok" });
      if (path === "/v1/models") {
        return Response.json({ object: "list", data: MODELS });
      }
      const model = MODELS.find(({ id }) => path === `/v1/models/${id}`);
      if (model !== undefined) return Response.json(model);
    }
    throw new ApiError("not_found", "Not Found");
  }

  async #generate(request: Request, plan: Planner): Promise<Response> {
    const { onRequest, pace = {} } = this.#options;
    const received = await receive(request);
    const run = new SeenRequest(request, received.text);
    const { signal } = run.leaving;
    const cut = () => run.end("left");
    this.#stopping().addEventListener("abort", cut, { signal });
    onRequest?.(run);
    try {
      return await respond(run, await plan(received, this.#cache), pace);
    } catch (error) {
      run.end(signal.aborted ? "left" : "refused");
      throw error;
    }
  }
}
