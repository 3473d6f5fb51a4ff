import type { MonotonicNow } from "@gateway/shared/process/clock";
import { SSE_LIMITS } from "@gateway/shared/limits";
import type { StartedRun } from "../dispatch/dispatcher.ts";
import {
  abandon,
  type HeaderFields,
  type ResponseOutput,
} from "../http/responses.ts";

export interface ClientWriterOptions {
  out: ResponseOutput;
  now: MonotonicNow;
  /** The run that the answer comes from. Nothing is written before it was started. */
  run: () => StartedRun;
}

/**
 * Writes an answer while it arrives, as fast as its client reads it: frames count as
 * delivered once the socket has taken them, which lets the worker send more.
 */
export class ClientWriter {
  /** Nothing more is written. */
  isOver = false;
  lastWrittenAtMs: number;
  readonly #options: ClientWriterOptions;
  /** The last frame that waits for the client, or 0 if the socket has taken everything. */
  #queuedSequence = 0;
  /** When the client stopped reading; null while it keeps up. */
  #blockedSinceMs: number | null = null;

  constructor(options: ClientWriterOptions) {
    this.#options = options;
    this.lastWrittenAtMs = options.now();
  }

  /** The head was written. */
  get isOpen(): boolean {
    return this.#options.out.headersSent;
  }

  /** Writes the head, together with the first bytes. */
  open(headers: HeaderFields, status = 200): void {
    const { out } = this.#options;
    out.writeHead(status, headers);
    out.on("drain", () => this.#onDrained());
  }

  /** Writes bytes, perhaps none, after which everything up to this frame is delivered. */
  write(bytes: Uint8Array, sequence = this.#queuedSequence): void {
    const { out, now } = this.#options;
    this.#queuedSequence = sequence;
    if (bytes.length > 0) {
      this.lastWrittenAtMs = now();
      if (!out.write(bytes)) this.#blockedSinceMs ??= this.lastWrittenAtMs;
      else this.#blockedSinceMs = null;
    }
    if (this.#blockedSinceMs === null) this.#onDrained();
  }

  /** Stops the run if the client has taken nothing for too long. */
  cutIfSlow(nowMs: number): boolean {
    const since = this.#blockedSinceMs;
    if (since === null || nowMs - since < SSE_LIMITS.slowClientMs) return false;
    this.cut();
    this.#options.run().cancel("slow_client");
    return true;
  }

  /** Ends the answer, perhaps with some last bytes. */
  end(last?: Uint8Array): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#options.out.end(last);
  }

  /** Aborts the answer: the client sees that it is not complete. */
  cut(): void {
    if (this.isOver) return;
    this.isOver = true;
    abandon(this.#options.out);
  }

  /** The socket accepts data again, so what was queued counts as delivered. */
  #onDrained(): void {
    this.#blockedSinceMs = null;
    if (this.#queuedSequence === 0) return;
    const taken = this.#queuedSequence;
    this.#queuedSequence = 0;
    this.#options.run().delivered(taken);
  }
}
