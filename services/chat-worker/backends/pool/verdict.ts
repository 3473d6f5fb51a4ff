import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { UpstreamError, type UpstreamFault } from "../upstream_error.ts";
import type { AttemptResult } from "./circuit_breaker.ts";

/** How an attempt ended. `internal`: an error of ours. */
export type AttemptOutcome = "success" | "aborted" | "internal" | UpstreamFault;

/** What follows from a fault, if it comes before the first event. */
export interface Verdict {
  /** Another backend may do better. */
  isWorthElsewhere: boolean;
  /** The same backend may do better in a moment. */
  isWorthAgain: boolean;
  /** What the circuit breaker is told. */
  result: AttemptResult;
  /** The error says when to come back. */
  isLimit: boolean;
}

function verdict(
  isWorthElsewhere: boolean,
  isWorthAgain: boolean,
  result: AttemptResult,
): Verdict {
  return { isWorthElsewhere, isWorthAgain, result, isLimit: false };
}

function limit(result: AttemptResult): Verdict {
  return {
    isWorthElsewhere: true,
    isWorthAgain: false,
    result,
    isLimit: true,
  };
}

/**
 * By fault. A refused request proves that the server is well. A limit says
 * nothing about its health, and trying again at once would be impolite; no room
 * is a fault only where nothing else is ever said. After a timeout the client
 * has waited long enough for this server.
 */
export const VERDICTS: Record<UpstreamFault, Verdict> = {
  request: verdict(false, false, "success"),
  credentials: verdict(true, false, "failure"),
  unknown_model: verdict(true, false, "failure"),
  rate_limited: limit("ignored"),
  overloaded: limit("overloaded"),
  unreachable: verdict(true, true, "failure"),
  server_error: verdict(true, true, "failure"),
  timeout: verdict(true, false, "failure"),
  deadline: verdict(false, false, "failure"),
  truncated: verdict(true, true, "failure"),
  invalid: verdict(true, false, "failure"),
};

/** Faults of backends that throw plain errors. Other codes below 500 are refusals. */
const FAULT_BY_CODE: { [code in ErrorCode]?: UpstreamFault } = {
  upstream_rate_limited: "rate_limited",
  overloaded: "overloaded",
  service_unavailable: "overloaded",
  upstream_unreachable: "unreachable",
  upstream_timeout: "timeout",
  deadline_exceeded: "deadline",
  upstream_truncated: "truncated",
  upstream_invalid: "invalid",
};

/** The fault an error stands for; null: it is none of a model server. */
export function faultOf(error: unknown): UpstreamFault | null {
  if (error instanceof UpstreamError) return error.fault;
  if (!(error instanceof ApiError)) return null;
  return FAULT_BY_CODE[error.code] ??
    (error.status < 500 ? "request" : "server_error");
}
