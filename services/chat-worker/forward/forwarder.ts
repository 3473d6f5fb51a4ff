/** Runs forwarded requests: their bodies and answers pass as they are. */
import { forwardEndpoint } from "@gateway/shared/forward/endpoints";
import { urlOfPath } from "@gateway/shared/forward/other_paths";
import { bodyFor, type ForwardRequest } from "@gateway/shared/forward/request";
import { withoutTools } from "@gateway/shared/forward/tool_types";
import type { Usage } from "@gateway/shared/openai/completion";
import { noteOddities, readStart } from "@gateway/shared/upstream/body_form";
import {
  invalidAnswer,
  UpstreamError,
} from "@gateway/shared/upstream/http/errors";
import type {
  ModelServer,
  RequestEncoder,
} from "@gateway/shared/upstream/model_server";
import type {
  JobContext,
  JobCost,
} from "@gateway/shared/worker/jobs/job_ports";
import type { AnswerMemory } from "@gateway/shared/worker/jobs/memory";
import type { Pool } from "@gateway/shared/worker/service";
import type { ForwardAttempt } from "./attempt.ts";
import { passEvents } from "./events.ts";
import { passOn, type ReadAnswer, readAnswer } from "./whole_answer.ts";

/** Encoders that are kept for a server; the query of a path is the client's. */
const ENCODERS_MAX = 64;
/** Sent to servers that want a version, by clients that name none. */
const ANTHROPIC_VERSION = { "anthropic-version": "2023-06-01" };

/** What a run needs. */
export interface ForwardTools {
  pool: Pool<ModelServer>;
  memory: AnswerMemory;
}

/** An answer that was passed on, or a whole one that is still to be passed on. */
type ServerAnswer =
  | { readonly whole: null; readonly usage: Usage }
  | { readonly whole: ReadAnswer; readonly usage: Usage };

/** Forwards requests, and remembers how to address each server. */
export class Forwarder {
  readonly #encoders = new WeakMap<ModelServer, Map<string, RequestEncoder>>();

  /**
   * Runs a request until its answer is complete, on a server that has its endpoint.
   * Rejects like {@link BackendPool.run}; the error of a refusal keeps what the server
   * has said.
   */
  async run(
    request: ForwardRequest,
    context: JobContext,
    { pool, memory }: ForwardTools,
  ): Promise<JobCost> {
    const heldBytes = memory.openAnswer();
    try {
      const { whole, usage } = await pool.run(context, (server, progress) => {
        heldBytes.release(); // What a failed attempt held is gone.
        return this.#ask({ request, server, context, progress, heldBytes });
      }, (server) => speaks(server, request));
      if (whole !== null) await passOn(whole, context);
      return { usage, tokens: usage.completion_tokens };
    } finally {
      heldBytes.release();
    }
  }

  /** Asks one server. Events pass on while they come; a whole answer is kept. */
  #ask(asking: Omit<ForwardAttempt, "dropped">): Promise<ServerAnswer> {
    const { request, server, context, progress } = asking;
    const { model, drop_tool_types: types } = server.config;
    const { text, dropped } = types.length === 0
      ? { text: bodyFor(request, model), dropped: [] }
      : withoutTools(bodyFor(request, model), types);
    if (dropped.length > 0) {
      progress.onOddity("tools_dropped", dropped.length);
    }
    const attempt = { ...asking, dropped };
    const serverRequest = {
      encode: this.#encoderOf(server, request),
      body: text,
      context: { ...context, headers: request.headers },
      mustBeginSoon: request.stream,
      keepsRefusals: true,
    };
    return exchange(
      { server, request },
      serverRequest,
      async (response): Promise<ServerAnswer> => {
        const start = await readStart(response);
        noteOddities(response, { form: start.form, progress });
        if (start.form === "page" && request.forward !== "other") {
          throw invalidAnswer("A web page instead of an answer");
        }
        if (start.form === "events" && request.stream) {
          const usage = await passEvents(attempt, response, start.bytes);
          progress.usage = usage;
          return { whole: null, usage };
        }
        const whole = await readAnswer(attempt, response, start);
        progress.onBegun("whole");
        progress.hasSent = true;
        progress.usage = whole.usage;
        return { whole, usage: whole.usage };
      },
    );
  }

  #encoderOf(
    server: ModelServer,
    { forward, path: other, query, stream }: ForwardRequest,
  ): RequestEncoder {
    const { path, envelope } = forwardEndpoint(forward);
    const to = other === undefined
      ? path.replace(/^\/v1/, "") + query
      : urlOfPath(server.config, other);
    const key = `${stream} ${to}`;
    let encoders = this.#encoders.get(server);
    if (encoders === undefined) {
      encoders = new Map();
      this.#encoders.set(server, encoders);
    }
    let encode = encoders.get(key);
    if (encode === undefined) {
      const accept = stream ? "text/event-stream" : "application/json";
      const defaults = envelope === "anthropic" ? ANTHROPIC_VERSION : {};
      encode = server.encoder(to, { accept, defaults });
      if (encoders.size < ENCODERS_MAX) encoders.set(key, encode);
    }
    return encode;
  }
}

/**
 * An exchange with a server. That it cannot count tokens is told as 404: only then do
 * agents count by themselves.
 */
async function exchange<Result>(
  { server, request }: Pick<ForwardAttempt, "server" | "request">,
  ...asking: Parameters<typeof server.exchange<Result>>
): Promise<Result> {
  try {
    return await server.exchange(...asking);
  } catch (error) {
    const isMissing = error instanceof UpstreamError &&
      error.fault === "no_endpoint";
    if (!isMissing || !forwardEndpoint(request.forward).isFree) throw error;
    const { fault, cause } = error;
    const message = "The model server cannot count tokens";
    throw new UpstreamError(fault, { code: "not_found", message, cause });
  }
}

function speaks(
  { config: { dialect, forward_paths: paths } }: ModelServer,
  { forward, path = "" }: ForwardRequest,
): boolean {
  if (forward === "other") return paths.includes(path);
  const { kind } = forwardEndpoint(forward);
  return kind !== "chat" || dialect.speaks.includes(forward);
}
