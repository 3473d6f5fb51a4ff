/** The admission of a request whose client may leave, or whose key may be stopped. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { keyRevoked } from "../dispatch/run_errors.ts";
import type { Admission, AdmissionAsk, RunLease } from "../limits/admission.ts";
import type { Caller } from "../limits/callers/caller.ts";
import type { RunStarter } from "./run_record.ts";

/** What a request asks of the admission, and what becomes of its count. */
export interface RunAsk extends AdmissionAsk {
  /** Once it has ended, it counts as no request. */
  readonly isReturned?: boolean;
}

/** What the admission of a request needs. */
export interface AdmitDependencies {
  admission: Pick<Admission, "admit">;
  dispatcher: Pick<RunStarter, "isStoppedSince">;
  now: MonotonicNow;
}

/**
 * Reserves what a request may cost, and its place among those of its key. Null if the
 * client has disconnected in the meantime. Throws the `ApiError` of a refusal.
 */
export async function admit(
  { exchange: { socket }, principal }: {
    exchange: { socket: { readonly destroyed: boolean } };
    principal: Caller;
  },
  ask: RunAsk,
  { admission, dispatcher, now }: AdmitDependencies,
): Promise<RunLease | null> {
  const { isReturned = false } = ask;
  const askedAtMs = now();
  const lease = await admission.admit(principal, ask);
  const isStopped = dispatcher.isStoppedSince(principal.keyId, askedAtMs);
  const hasLeft = socket.destroyed;
  if (isStopped || hasLeft) {
    if (isReturned) lease.undo();
    else lease.settle(null);
  }
  if (isStopped) throw keyRevoked();
  return hasLeft ? null : lease;
}
