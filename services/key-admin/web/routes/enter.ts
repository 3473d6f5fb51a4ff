import type { Admitted } from "../../domain/sign_in/sign_in.ts";
import type { ConsoleContext, ConsoleDeps } from "../context.ts";
import { writeCookie } from "../cookies.ts";
import { findSignedIn } from "../session_guard.ts";

/** Fewer are typing mistakes. */
const FAILURES_TOLD = 5;

/** Hands over the new session. One that the browser had before ends (ASVS 7.2.4). */
export async function enter(
  c: ConsoleContext,
  deps: ConsoleDeps,
  { cookie, device, failedBefore }: Admitted,
  next: string,
): Promise<Response> {
  const before = await findSignedIn(c, deps);
  if (before !== null) {
    await deps.sessions.end(before.account.ownerId, before.session.id);
  }
  writeCookie(c, deps.publicUrl, "sid", cookie);
  writeCookie(c, deps.publicUrl, "device", device);
  // The owner must learn that somebody else may be trying (ASVS 6.3.5).
  const told = failedBefore < FAILURES_TOLD ? next : "/keys?done=failed_tries";
  return c.redirect(told, 303);
}
