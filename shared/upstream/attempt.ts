/** A request to the backends of a model, and what its attempts tell and report. */
import type { Usage } from "../openai/completion.ts";
import type { UpstreamError, UpstreamFault } from "./http/errors.ts";
import type { Oddity } from "./oddities.ts";

/** What identifies and ends a request on its way to a model server. */
export interface PoolContext {
  /**
   * 32 hex digits, sent to the model server unchanged: llama-cpp-python accepts only
   * UUIDs.
   */
  requestId: string;
  /**
   * Aborted when the answer is no longer needed; the request to the model server must
   * then end within 100 ms.
   */
  signal: AbortSignal;
  /** W3C trace context, passed on to the model server. */
  traceparent?: string | undefined;
  /** Sent besides those that the server always gets, by name in lower case. */
  headers?: Readonly<Record<string, string>>;
  /**
   * The conversation that it belongs to, 16 hexadecimal digits: its requests go to the
   * same backend if they can. Absent: to any.
   */
  session?: string | undefined;
  /** It shows whether a backend answers, and is nobody's request. */
  isProbe?: boolean;
  /** It is about a job that a backend runs already, even if that one is drained. */
  isOfRunningJob?: boolean;
  /**
   * False: if all backends are at limits of theirs, it fails at once, because whoever
   * made it queues it again.
   */
  mayWait?: boolean;
  /** Called with the name of each backend that is asked, before it is. */
  onBackend?(name: string): void;
}

/** What an attempt tells the pool while it runs. */
export interface AttemptProgress {
  /** Set once part of the answer was passed on: nothing is repeated from then on. */
  hasSent: boolean;
  /**
   * Must be called once, when the answer begins; `whole`: it has come at once, so that
   * its beginning says nothing about its first token.
   */
  onBegun(how?: "whole" | undefined): void;
  /** Something was undone or skipped, this many times. */
  onOddity(oddity: Oddity, count: number): void;
  /** What the server has stated of its cost. */
  usage?: Usage;
}

/** How one attempt ended, for metrics and logs. */
export interface AttemptReport {
  requestId: string;
  backend: string;
  /** The variable with the key that was used, where there are several or limits. */
  key?: string | undefined;
  /** `internal`: an error of this worker. */
  outcome: "success" | "aborted" | "internal" | UpstreamFault;
  /** It was nobody's request, see {@link PoolContext}. */
  isProbe?: boolean;
  /** How long it took from the request to the end of the answer, or to the failure. */
  durationMs: number;
  /** How long it took from the request to the first token of a stream. */
  firstTokenMs?: number | undefined;
  /** What the server has stated of its cost, if it has. */
  usage?: Usage | undefined;
  /** The error that ended it, for the log; null for a success. */
  error: unknown;
}

/** A request on its way through the backends, and what has come of it. */
export class Trial<Backend, Result> {
  /** What failed, and may work with another backend. */
  readonly failures: UpstreamError[] = [];
  /** What failed because of the key that was used, and may work with another key. */
  keyFailures: UpstreamError[] = [];
  /** Whether a backend has not taken it because of a limit. */
  wasLimited = false;

  constructor(
    readonly context: PoolContext,
    readonly attempt: (
      backend: Backend,
      progress: AttemptProgress,
    ) => Promise<Result>,
  ) {}
}

/** Whether the server has refused the request because of a limit. */
export const isOfLimit = ({ remedy }: UpstreamError): boolean =>
  remedy === "later";
