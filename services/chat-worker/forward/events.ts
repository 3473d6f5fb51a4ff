/** Passes the events of a model server on as they come, several in one frame. */
import { Buffer } from "node:buffer";
import { encodeAnswerHead } from "@gateway/shared/forward/answer_head";
import {
  EventTap,
  type FailureEvent,
} from "@gateway/shared/forward/events/event_tap";
import type { ForwardRequest } from "@gateway/shared/forward/request";
import { answerHeaders } from "@gateway/shared/forward/passed_headers";
import { type Usage, usageOfTokens } from "@gateway/shared/openai/completion";
import { frameError } from "@gateway/shared/upstream/error_response";
import {
  invalidAnswer,
  truncatedAnswer,
  type UpstreamError,
} from "@gateway/shared/upstream/http/errors";
import { isJsonObject } from "@gateway/shared/upstream/json";
import type {
  ModelServer,
  ServerResponse,
} from "@gateway/shared/upstream/model_server";
import {
  armNext,
  isCut,
  LONG_EVENT_MIN,
  mayPauseAfter,
} from "../backends/answer_stream.ts";
import { dropHeaders, type ForwardAttempt } from "./attempt.ts";

const EVENT_STREAM = "text/event-stream";

/**
 * Passes on all events, after the `start` that was read already, and returns the usage.
 * Until the model has begun, nothing passes, so that another server may still answer.
 * Rejects with the error that the server reports, or `upstream_truncated`.
 */
export async function passEvents(
  attempt: ForwardAttempt,
  response: ServerResponse,
  start: Uint8Array | null,
): Promise<Usage> {
  const { request } = attempt;
  const tap = new EventTap(request.forward);
  const stream = new EventStream(attempt, response, tap);
  try {
    await stream.read(start);
  } catch (error) {
    // A connection that breaks after the end of the answer is no loss.
    if (!tap.isFinished || !isCut(error)) throw error;
  }
  if (!tap.isFinished) throw truncatedAnswer("No end of the answer");
  if (tap.isRepaired) attempt.progress.onOddity("usage_repaired", 1);
  return chargedUsage(tap, request);
}

/**
 * What the server states. What it does not is estimated: some servers say nothing of
 * what they have written, others that they have read nothing.
 */
function chargedUsage(
  { usage, hasText, estimatedTokens }: EventTap,
  request: ForwardRequest,
): Usage {
  const { prompt_tokens_details: cached, completion_tokens_details: reasoned } =
    usage ?? {};
  const prompt = usage?.prompt_tokens || request.promptTokens;
  const isStated = usage !== null &&
    (usage.completion_tokens > 0 || !hasText);
  return {
    ...usageOfTokens(
      prompt,
      isStated ? usage.completion_tokens : estimatedTokens,
    ),
    ...cached && { prompt_tokens_details: cached },
    ...isStated && reasoned && { completion_tokens_details: reasoned },
  };
}

/** One stream on its way from its server to its edge. */
class EventStream {
  readonly #attempt: ForwardAttempt;
  readonly #response: ServerResponse;
  readonly #tap: EventTap;
  /** What came before the model had begun. */
  #before: Uint8Array[] = [];
  /** The memory that an unfinished event takes. */
  #heldBytes = 0;

  constructor(
    attempt: ForwardAttempt,
    response: ServerResponse,
    tap: EventTap,
  ) {
    this.#attempt = attempt;
    this.#response = response;
    this.#tap = tap;
  }

  /** Reads to the end. */
  async read(start: Uint8Array | null): Promise<void> {
    const { connection, deadlines } = this.#response;
    const { context, server } = this.#attempt;
    const tap = this.#tap;
    for (
      let piece = start;
      piece !== null;
      piece = await connection.read()
    ) {
      const hadBegun = tap.hasBegun;
      const events = this.#push(piece);
      const room = this.#pass(events, hadBegun);
      if (tap.failure !== null) throw failureWithEvent(tap.failure, server);
      const mayPause = room === undefined && events.length > 0 &&
        mayPauseAfter(piece, tap);
      const rest = room ?? this.#hold() ?? (mayPause && context.pause());
      if (rest) {
        deadlines.rest();
        await rest;
        deadlines.throwIfEnded();
      }
      armNext(this.#response, tap);
    }
    await this.#end();
  }

  /** Passes on what is left, if it belongs to a complete answer. */
  async #end(): Promise<void> {
    const { server } = this.#attempt;
    const tap = this.#tap;
    const hadBegun = tap.hasBegun;
    const rest = tap.end();
    if (tap.failure !== null) throw failureWithEvent(tap.failure, server);
    if (tap.isFinished && rest.length > 0) await this.#pass(rest, hadBegun);
  }

  #push(piece: Uint8Array): Uint8Array {
    try {
      return this.#tap.push(piece);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw invalidAnswer(error.message);
    }
  }

  /** Passes events on, the first ones with what came before and with the head. */
  #pass(events: Uint8Array, hadBegun: boolean): Promise<void> | undefined {
    const { context, progress } = this.#attempt;
    const { hasBegun, tokens } = this.#tap;
    if (hadBegun) return context.write(events, tokens);
    if (!hasBegun) {
      // A copy, since the next read takes the buffer.
      if (events.length > 0) this.#before.push(new Uint8Array(events));
      return;
    }
    progress.onBegun();
    progress.hasSent = true;
    const { fields } = this.#response.head;
    const head = encodeAnswerHead({
      content_type: EVENT_STREAM,
      headers: { ...answerHeaders(fields), ...dropHeaders(this.#attempt) },
    });
    const before = this.#before;
    this.#before = [];
    return context.write(
      Buffer.concat([Buffer.from(head), ...before, events]),
      tokens,
    );
  }

  /** Counts the memory that a long event takes until it is complete. */
  #hold(): Promise<void> | undefined {
    const { heldBytes } = this.#attempt;
    const { pendingBytes } = this.#tap;
    const bytes = pendingBytes >= LONG_EVENT_MIN ? pendingBytes : 0;
    const more = bytes - this.#heldBytes;
    if (more === 0) return;
    this.#heldBytes = bytes;
    if (more > 0) return heldBytes.grow(more);
    heldBytes.shrink(-more);
  }
}

/** The error that a server reports in an event. */
export function failureOf(
  { data }: FailureEvent,
  { redact }: Pick<ModelServer, "redact">,
): UpstreamError {
  // A response that has failed has its error as a member.
  const response = isJsonObject(data) && isJsonObject(data.response)
    ? data.response
    : data;
  return frameError(response, redact);
}

/** The same error, with the event for the client. */
function failureWithEvent(
  failure: FailureEvent,
  server: Pick<ModelServer, "redact" | "scrub">,
): UpstreamError {
  const error = failureOf(failure, server);
  return error.keeping({
    status: error.status,
    contentType: EVENT_STREAM,
    body: scrubbed(failure.text, failure.data, server.scrub),
    headers: {},
  });
}

/** An event without secrets: unchanged if it has none. */
function scrubbed(
  text: string,
  data: unknown,
  scrub: (text: string) => string,
): string {
  if (!isJsonObject(data)) return "";
  let hasSecrets = false;
  const clean = JSON.stringify(data, (_, value: unknown) => {
    if (typeof value !== "string") return value;
    const safe = scrub(value);
    if (safe !== value) hasSecrets = true;
    return safe;
  });
  if (!hasSecrets) return text;
  const name = /^event:.*\n/.exec(text)?.[0] ?? "";
  return `${name}data: ${clean}\n\n`;
}
