/** Calls of jobs without a worker. */
import { Buffer } from "node:buffer";
import type { AttemptProgress } from "@gateway/shared/upstream/attempt";
import type { JobContext } from "@gateway/shared/worker/jobs/job_ports";

/** The call of a job, and what was passed on of its answer. */
export interface RecordedContext extends JobContext {
  /** What was passed on, and the count of the last part. */
  bytes: number;
  tokens: number;
  answer(): Buffer;
  /** The count at each pause. */
  readonly pauses: number[];
}

/** The call of a job that collects what is passed on of its answer. */
export function recordContext(
  { signal = new AbortController().signal, files = [] }: Partial<JobContext> =
    {},
): RecordedContext {
  const parts: Uint8Array[] = [];
  const context: RecordedContext = {
    requestId: "req1",
    created: 1_767_622_290,
    signal,
    files,
    bytes: 0,
    tokens: 0,
    answer: () => Buffer.concat(parts),
    pauses: [],
    pause: () => void context.pauses.push(context.tokens),
    write(part, tokens) {
      const bytes = Buffer.from(part);
      parts.push(bytes);
      context.bytes += bytes.length;
      context.tokens = tokens;
      return undefined;
    },
  };
  return context;
}

/** The call of a client that reads nothing until `room` is resolved. */
export function slowContext(signal?: AbortSignal) {
  const room = Promise.withResolvers<void>();
  const context = recordContext(signal && { signal });
  const { write } = context;
  context.write = (...written) => write(...written) ?? room.promise;
  return { context, room };
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
