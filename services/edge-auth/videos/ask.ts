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

/** Bounds an answer about a video; workers clip what model servers say to less. */
const BYTES_MAX = 1024 * 1024;

/**
 * Collects a worker's answer about a video. No part of it reaches a client before it is
 * complete, so that another worker may take over until then.
 */
export class EngineAnswer implements UploadAnswer {
  readonly hasStarted = false;
  readonly #run: () => StartedRun;
  readonly #onLeft: () => void;
  #onOver: ((result: EngineVideo | ApiError | null) => void) | null;
  #bytes: Uint8Array[] = [];
  #size = 0;

  /** `onOver` is called once, with null for an empty answer, unless the client has disconnected. */
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

/** The error for an answer that is empty or too large. */
export const unread = () =>
  new ApiError(
    "upstream_invalid",
    "The model server sent an invalid answer.",
  );

/** Asks the model server of a video. Resolves with its answer, null for a deleted video; rejects with an `ApiError`. */
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
