/**
 * Appends to the log of kept answers: what is published on the subject of a request,
 * the log acknowledges on an inbox of this connection. The client of JetStream does the
 * same, but makes a timer and several errors for each message, which cost more than the
 * entry: a busy worker appends a thousand a second.
 */
import { z } from "zod";
import { type BusMessage, isNoResponders } from "../bus/link.ts";
import type { BusLink } from "../bus/link_nats.ts";
import { parsePayload } from "../bus/stream/frame.ts";
import { lastToken, subjects } from "../bus/subjects.ts";
import { LiveMap } from "../process/maps.ts";
import { KEPT_LIMITS } from "./limits.ts";
import { KeptLogError } from "./log.ts";
import { failureOfCode } from "./log_errors.ts";

/** The last entry of its subject that an append follows; 0: there is none. */
const EXPECTED = "Nats-Expected-Last-Subject-Sequence";

/** What JetStream says of an append. */
const ackSchema = z.object({
  /** 0 with an error. */
  seq: z.int().default(0),
  error: z.object({
    err_code: z.int().default(0),
    description: z.string().default(""),
  }).optional(),
});

/** An append that is not acknowledged yet. */
interface Waiting {
  /** The last token of its reply subject. */
  readonly token: string;
  readonly untilMs: number;
  readonly resolve: (sequence: number) => void;
  readonly reject: (error: KeptLogError) => void;
}

/** What {@link Appends} needs. */
export interface AppendsOptions {
  readonly link: Pick<
    BusLink,
    "publish" | "subscribe" | "onEvent" | "createInbox"
  >;
  /** Runs a function after this time, unless what it returns is called before. */
  readonly schedule: (run: () => void, waitMs: number) => () => void;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
}

/** Appends over one link to the bus, as many at a time as come. */
export class Appends {
  readonly #options: AppendsOptions;
  readonly #inbox: string;
  /** By their tokens; so also in the order of their deadlines. */
  readonly #waiting = new LiveMap<Waiting>();
  #count = 0;
  #isListening = false;
  #unschedule: (() => void) | null = null;

  constructor(options: AppendsOptions) {
    this.#options = options;
    this.#inbox = options.link.createInbox();
  }

  /**
   * Appends an entry to those of a request if the last one has this sequence. Resolves
   * with the new one. Rejects with a {@link KeptLogError}, at the latest after `callMs`
   * or when the connection is lost.
   */
  append(
    requestId: string,
    bytes: Uint8Array,
    lastSequence: number,
  ): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const { link, now } = this.#options;
    this.#listen();
    this.#count += 1;
    const token = this.#count.toString(36);
    try {
      link.publish(subjects.kept(requestId), bytes, {
        reply: `${this.#inbox}.${token}`,
        header: { name: EXPECTED, value: `${lastSequence}` },
      });
    } catch (error) {
      return Promise.reject(new KeptLogError("unavailable", error));
    }
    const untilMs = now() + KEPT_LIMITS.callMs;
    this.#waiting.set(token, { token, untilMs, resolve, reject });
    this.#unschedule ??= this.#expireIn(KEPT_LIMITS.callMs);
    return promise;
  }

  /** Not before the first append: edges read only. */
  #listen(): void {
    if (this.#isListening) return;
    this.#isListening = true;
    const { link } = this.#options;
    link.subscribe(`${this.#inbox}.*`, (message) => this.#onAck(message));
    link.onEvent((event) => {
      if (event === "disconnected") this.#failAll("the connection was lost");
    });
  }

  #onAck(message: BusMessage): void {
    const token = lastToken(message.subject);
    const waiting = this.#waiting.get(token);
    // Else it comes too late: its append was given up.
    if (waiting === null) return;
    this.#remove(token);
    if (isNoResponders(message)) {
      return waiting.reject(unavailable("there is no log"));
    }
    const ack = parsePayload(ackSchema, message.data);
    if (ack?.error !== undefined) {
      const { err_code: code, description } = ack.error;
      waiting.reject(new KeptLogError(failureOfCode(code), description));
    } else if (ack === null || ack.seq < 1) {
      waiting.reject(unavailable("the acknowledgement cannot be read"));
    } else waiting.resolve(ack.seq);
  }

  /** One timer for all, which does not run while none waits. */
  #expireIn(waitMs: number): () => void {
    return this.#options.schedule(() => this.#expire(), waitMs);
  }

  #expire(): void {
    this.#unschedule = null;
    const nowMs = this.#options.now();
    for (const { token, untilMs, reject } of this.#waiting.values()) {
      if (untilMs > nowMs) {
        this.#unschedule = this.#expireIn(untilMs - nowMs);
        return;
      }
      this.#waiting.delete(token);
      reject(unavailable(`no answer within ${KEPT_LIMITS.callMs} ms`));
    }
  }

  #failAll(reason: string): void {
    for (const { token, reject } of this.#waiting.values()) {
      this.#remove(token);
      reject(unavailable(reason));
    }
  }

  #remove(token: string): void {
    this.#waiting.delete(token);
    if (this.#waiting.size > 0) return;
    this.#unschedule?.();
    this.#unschedule = null;
  }
}

const unavailable = (reason: string): KeptLogError =>
  new KeptLogError("unavailable", reason);
