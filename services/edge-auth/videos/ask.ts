/** Asks workers about videos. */
import { Buffer } from "node:buffer";
import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import { ApiError } from "@gateway/shared/openai/error";
import { parseJson } from "@gateway/shared/bus/frame";
import {
  type EngineVideo,
  engineVideoSchema,
  type VideoRequest,
} from "@gateway/shared/openai/video";
import { newRequestId } from "@gateway/shared/process/ids";
import type { Dispatcher, StartedRun } from "../dispatch/dispatcher.ts";
import type { RunJob } from "../dispatch/run.ts";
import type { UploadAnswer } from "../requests/run_upload.ts";

/** What engines say about a video is clipped to less. */
const BYTES_MAX = 1024 * 1024;

/**
 * Collects what a worker says about a video. Nothing of it reaches a client before it is
 * whole, so that another worker may take over until then.
 */
export class EngineAnswer implements UploadAnswer {
  readonly hasStarted = false;
  readonly #run: () => StartedRun;
  readonly #onLeft: () => void;
  #onOver: ((result: EngineVideo | ApiError | null) => void) | null;
  #bytes: Uint8Array[] = [];
  #size = 0;

  /** `onOver` is called once, with null if nothing is said, unless nobody waits any more. */
  constructor(
    run: () => StartedRun,
    onOver: (result: EngineVideo | ApiError | null) => void,
    /** The client has left. */
    onLeft: () => void = () => {},
  ) {
    this.#run = run;
    this.#onLeft = onLeft;
    this.#onOver = onOver;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#size += payload.length;
    if (this.#size > BYTES_MAX) {
      return this.#run().cancel("violation", unread());
    }
    this.#bytes.push(payload.slice());
    this.#run().delivered(sequence);
  }

  onEnd(): void {
    const read = new MediaHeadReader().push(Buffer.concat(this.#bytes));
    const isRead = read !== null && read !== "invalid";
    this.#end(isRead ? parseJson(engineVideoSchema, read.rest) : null);
  }

  onError(error: ApiError): void {
    this.#end(error);
  }

  onAbandoned(): void {
    if (this.#onOver !== null) this.#onLeft();
    this.detach();
  }

  onRestart(): void {
    this.#bytes = [];
    this.#size = 0;
  }

  onTick(): void {}

  detach(): void {
    this.#onOver = null;
  }

  #end(result: EngineVideo | ApiError | null): void {
    this.#onOver?.(result);
    this.#onOver = null;
  }
}

/** The error of an answer that says nothing, or too much. */
export const unread = () =>
  new ApiError(
    "upstream_invalid",
    "The answer of the model server cannot be understood.",
  );

/** Asks the engine of a video, and resolves with what it says: null for one that it has deleted. Rejects with an `ApiError`. */
export function askEngine(
  request: VideoRequest,
  dispatcher: Pick<Dispatcher, "start">,
): Promise<EngineVideo | null> {
  const { promise, resolve, reject } = Promise.withResolvers<
    EngineVideo | null
  >();
  const answer = new EngineAnswer(() => run, (result) => {
    if (result instanceof ApiError) reject(result);
    else resolve(result);
  });
  const job: RunJob = {
    ...{ requestId: newRequestId(), keyId: "", kind: "video", request },
  };
  const run = dispatcher.start(job, answer, () => {});
  return promise;
}
