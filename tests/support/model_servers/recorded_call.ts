/** Calls of jobs without a worker. */
import { Buffer } from "node:buffer";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import type { JobCall } from "@gateway/shared/worker/jobs/job";

/** The call of a job, and what was passed on of its answer. */
export interface RecordedCall extends JobCall {
  /** What was passed on, and the count of the last part. */
  bytes: number;
  tokens: number;
  answer(): Buffer;
  /** The count at each pause. */
  readonly pauses: number[];
}

/** The call of a job that collects what is passed on of its answer. */
export function recordCall(
  { signal = new AbortController().signal, files = [] }: Partial<JobCall> = {},
): RecordedCall {
  const parts: Uint8Array[] = [];
  const call: RecordedCall = {
    requestId: "req1",
    created: 1_767_622_290,
    signal,
    files,
    bytes: 0,
    tokens: 0,
    answer: () => Buffer.concat(parts),
    pauses: [],
    pause: () => void call.pauses.push(call.tokens),
    write(part, tokens) {
      const bytes = Buffer.from(part);
      parts.push(bytes);
      call.bytes += bytes.length;
      call.tokens = tokens;
      return undefined;
    },
  };
  return call;
}

/** The call of a client that reads nothing until `room` is resolved. */
export function slowCall(signal?: AbortSignal) {
  const room = Promise.withResolvers<void>();
  const call = recordCall(signal && { signal });
  const { write } = call;
  call.write = (...written) => write(...written) ?? room.promise;
  return { call, room };
}

/**
 * A pool of one backend. One attempt: what a pool repeats is not what a test has said.
 */
export const poolOf = <Backend>(backend: Backend) => ({
  run: <Result>(
    _call: unknown,
    attempt: (to: Backend, state: AttemptProgress) => Promise<Result>,
  ) => attempt(backend, noProgress()),
});

/** The progress of an attempt that nobody watches. */
export const noProgress = (): AttemptProgress => (
  { hasSent: false, onBegun: () => {}, onOddity: () => {} }
);
