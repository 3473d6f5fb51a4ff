/** A request of a client, from its arrival to the end of its handler. */
import type { UsageEndpoint } from "@gateway/shared/keys/limiter_state";
import type { Exchange } from "../http/exchange.ts";
import type { Caller } from "../limits/callers/caller.ts";
import type { Wishes } from "./wishes.ts";

/** A request that has arrived. */
export interface Call {
  readonly exchange: Exchange;
  /** 32 hexadecimal digits, unique. */
  readonly requestId: string;
  /** The part of the path that varies, or empty. */
  readonly id: string;
  /** The endpoint by which usage is counted; null if the request uses no model. */
  readonly endpoint: UsageEndpoint | null;
  /** The client's address, also when it has left. */
  readonly clientAddress: string;
  /** When it arrived, on the clock of the edge. */
  readonly startedAtMs: number;
}

/** A request whose key is known. Whether that may be used is decided later. */
export interface IdentifiedCall extends Call {
  readonly principal: Caller;
}

/** An identified request, and what its client asks for: what handlers get. */
export interface AuthenticatedCall extends IdentifiedCall, Wishes {}

/** Whether the client has disconnected. */
export const hasLeft = (
  { exchange: { socket } }: {
    exchange: { socket: { readonly destroyed: boolean } };
  },
): boolean => socket.destroyed;

/** What a handler has made of a call; the caller counts and logs it accordingly. */
export type CallEnd =
  /** It was answered, or its client has left. */
  | { readonly type: "answered" }
  /** It has a run, which counts and logs it when that ends. */
  | { readonly type: "running" }
  /** The error is to be sent. */
  | {
    readonly type: "refused";
    readonly error: unknown;
    /** As the client named it; null if the body was not read. */
    readonly model: string | null;
  };

/** The end of a call for which there is nothing more to do. */
export const ANSWERED: CallEnd = { type: "answered" };
/** The end of a call whose run does the rest. */
export const RUNNING: CallEnd = { type: "running" };

/** Handles calls of one route and method. May reject: that refuses the call, too. */
export type CallHandler<Dependencies> = (
  call: AuthenticatedCall,
  deps: Dependencies,
) => CallEnd | Promise<CallEnd>;

/** The end of a call that is refused. `model`: as the client named it. */
export function refused(error: unknown, model: unknown = null): CallEnd {
  return {
    type: "refused",
    error,
    model: typeof model === "string" ? model : null,
  };
}
