/** Runs forwarded requests: their bodies and answers pass as they are. */
import { Buffer } from "node:buffer";
import { encodeAnswerHead } from "@gateway/shared/forward/answer_head";
import { forwardEndpoint } from "@gateway/shared/forward/endpoints";
import { answerHeaders } from "@gateway/shared/forward/passed_headers";
import { bodyFor, type ForwardRequest } from "@gateway/shared/forward/request";
import { readWholeAnswer, usageOfInput } from "@gateway/shared/forward/usage";
import type { Usage } from "@gateway/shared/openai/completion";
import { invalidAnswer } from "@gateway/shared/upstream/errors";
import type {
  ModelServer,
  RequestEncoder,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import type { JobCall, JobCost } from "@gateway/shared/worker/job";
import type { HeldBytes, WorkerMemory } from "@gateway/shared/worker/memory";
import type { Pool } from "@gateway/shared/worker/service";

/** The largest whole answer: 1,000 vectors of 1,536 numbers in decimal fit. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
/** Bytes passed on at a time: a quarter of the credit window. */
const PIECE_BYTES_MAX = 64 * 1024;
/** Encoders that are kept for a server; the query of a path is the client's. */
const ENCODERS_MAX = 64;

/** What a run needs. */
export interface ForwardTools {
  pool: Pool<ModelServer>;
  memory: WorkerMemory;
}

/** A whole answer, which has been looked into. */
interface ReadAnswer {
  /** The line that precedes it. */
  readonly head: string;
  readonly body: Uint8Array;
  readonly usage: Usage;
}

/** Forwards requests, and remembers how to address each server. */
export class Forwarder {
  readonly #encoders = new WeakMap<ModelServer, Map<string, RequestEncoder>>();

  /**
   * Runs a request until its answer is complete. Rejects like {@link BackendPool.run};
   * the error of a refusal keeps what the server has said.
   */
  async run(
    request: ForwardRequest,
    call: JobCall,
    { pool, memory }: ForwardTools,
  ): Promise<JobCost> {
    const held = memory.openAnswer();
    try {
      const answer = await pool.run(call, async (server, progress) => {
        held.release(); // What a failed attempt held is gone.
        const answer = await this.#ask(request, { server, call, held });
        progress.hasSent = true;
        progress.onBegun();
        return answer;
      });
      await passOn(answer, call);
      return { usage: answer.usage, tokens: answer.usage.completion_tokens };
    } finally {
      held.release();
    }
  }

  /** Asks one server, and reads its answer as a whole. */
  #ask(
    request: ForwardRequest,
    { server, call, held }: {
      server: ModelServer;
      call: JobCall;
      held: HeldBytes;
    },
  ): Promise<ReadAnswer> {
    const sent = {
      encode: this.#encoderOf(server, request),
      body: bodyFor(request, server.config.model),
      call: { ...call, headers: request.headers },
      mustBeginSoon: false,
      keepsRefusals: true,
    };
    return server.exchange(sent, async (response) => {
      const body = await readWhole(response, held);
      return looked(request, { body, response });
    });
  }

  #encoderOf(
    server: ModelServer,
    { forward, query }: ForwardRequest,
  ): RequestEncoder {
    const path = forwardEndpoint(forward).path.replace(/^\/v1/, "") + query;
    let known = this.#encoders.get(server);
    if (known === undefined) {
      known = new Map();
      this.#encoders.set(server, known);
    }
    let encode = known.get(path);
    if (encode === undefined) {
      encode = server.encoder(path, { accept: "application/json" });
      if (known.size < ENCODERS_MAX) known.set(path, encode);
    }
    return encode;
  }
}

/** Reads all of a body, of which each byte is counted. */
async function readWhole(
  { connection, deadlines, server }: ServerResponse,
  held: HeldBytes,
): Promise<Buffer> {
  const { between_tokens_ms: betweenMs } = server.config.deadlines;
  connection.bytesLeft = ANSWER_BYTES_MAX;
  connection.onPiece = (bytes) => held.grow(bytes);
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await connection.read();
    if (piece === null) return Buffer.concat(pieces);
    // A copy, since the next read takes the buffer.
    pieces.push(new Uint8Array(piece));
    deadlines.arm("betweenTokens", betweenMs);
  }
}

/** What is known of an answer. Throws `upstream_invalid` if it is none. */
function looked(
  request: ForwardRequest,
  { body, response: { head } }: {
    body: Buffer;
    response: Pick<ServerResponse, "head">;
  },
): ReadAnswer {
  // Names and numbers are ASCII; read as Latin-1, nothing else has to be decoded.
  const text = body.toString("latin1");
  const answer = readWholeAnswer(text, request.forward);
  if (answer === null) throw invalidAnswer("Not a JSON object");
  const { vectors } = request;
  if (vectors !== null && answer.vectors !== vectors) {
    throw invalidAnswer(`${answer.vectors} vectors for ${vectors} inputs`);
  }
  return {
    head: encodeAnswerHead({
      content_type: head.fields.get("content-type") ?? "application/json",
      length: body.length,
      headers: answerHeaders(head.fields),
    }),
    body,
    usage: answer.usage ?? usageOfInput(request.promptTokens),
  };
}

/** Sends an answer to its edge, as fast as the client takes it. */
async function passOn(
  { head, body, usage }: ReadAnswer,
  call: JobCall,
): Promise<void> {
  const { completion_tokens: tokens } = usage;
  call.write(head, tokens);
  for (let at = 0; at < body.length; at += PIECE_BYTES_MAX) {
    const room = call.write(body.subarray(at, at + PIECE_BYTES_MAX), tokens);
    if (room === undefined) continue;
    await room;
    call.signal.throwIfAborted();
  }
}
