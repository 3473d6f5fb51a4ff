/** One offer of a job to a worker, and the answer that may follow. */
import type { Frame } from "@gateway/shared/bus/frame";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import {
  type StreamEvent,
  StreamReceiver,
  type StreamReceiverOptions,
} from "@gateway/shared/bus/stream_receiver";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { sendBody } from "./job.ts";
import type { WorkerTable } from "./workers.ts";

/** What all attempts of an edge share. */
export interface AttemptContext {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "receivedAtMs" | "request"
  >;
  now: MonotonicNow;
  /** Excludes the time in which this process was stalled. */
  steadyNow: MonotonicNow;
  log: Log;
  workers: WorkerTable;
  /** A slot may have become free for a waiting run. */
  onSlotFreed: () => void;
}

export interface AttemptOptions extends Omit<StreamReceiverOptions, "nowMs"> {
  /** A large request, which is sent when the worker has accepted the job. */
  body: Uint8Array | null;
  /** The worker accepted the job but does not acknowledge the request. */
  onBodyLost: () => void;
}

/** Created when the job has been sent. Holds a slot of its worker until `leave` is called. */
export class Attempt {
  /** The answer. Use {@link onFrame} and {@link onTick} of the attempt instead of its own. */
  readonly stream: StreamReceiver;
  readonly #context: AttemptContext;
  readonly #options: AttemptOptions;
  readonly #offeredAtMs: number;
  #hasSlot: boolean;

  constructor(context: AttemptContext, options: AttemptOptions) {
    const { workerId } = options;
    this.#context = context;
    this.#options = options;
    this.#offeredAtMs = context.now();
    this.#hasSlot = workerId !== null;
    if (workerId !== null) context.workers.onSent(workerId);
    this.stream = new StreamReceiver({
      ...options,
      nowMs: context.steadyNow(),
    });
  }

  /** The bus has failed since the job was sent, so it may not have arrived. */
  get mayBeUndelivered(): boolean {
    const { flowingSinceMs } = this.#context.bus;
    return flowingSinceMs === null || flowingSinceMs > this.#offeredAtMs;
  }

  onFrame(frame: Frame): StreamEvent {
    const { stream } = this;
    const wasAccepted = stream.isAccepted;
    const event = stream.onFrame(frame, this.#context.steadyNow());
    if (stream.isAccepted && !wasAccepted) {
      this.#hasSlot = true;
      if (this.#options.body !== null) void this.#sendBody(this.#options.body);
    }
    return event;
  }

  /** Must be called at every tick. */
  onTick(): StreamEvent {
    const { bus, steadyNow } = this.#context;
    // A worker does not have to answer while the bus delivers nothing at all.
    const isBusSilent = bus.isConnected && bus.receivedAtMs < this.#offeredAtMs;
    if (isBusSilent && !this.stream.isAccepted) return { type: "nothing" };
    return this.stream.onTick(steadyNow());
  }

  /** Frees the slot at the worker that it holds or was offered. */
  leave(): void {
    const { workerId } = this.stream;
    if (!this.#hasSlot || workerId === null) return;
    this.#hasSlot = false;
    this.#context.workers.onEnded(workerId);
    this.#context.onSlotFreed();
  }

  async #sendBody(body: Uint8Array): Promise<void> {
    const { bus, log } = this.#context;
    const { requestId, attempt, onBodyLost } = this.#options;
    const workerId = this.stream.workerId ?? "";
    const isWanted = () => !this.stream.isOver;
    try {
      await sendBody(bus, body, { requestId, attempt, workerId, isWanted });
    } catch (error) {
      const request = publicRequestId(requestId);
      log.warn("body_upload_failed", { requestId: request, workerId, error });
      if (isWanted()) onBodyLost();
    }
  }
}
