import type { ConsoleContext } from "./context.ts";
import { isStale } from "./session_guard.ts";

const LOCAL_PATH = /^\/(?![/\\])[A-Za-z0-9_\-/.?=&%:]{0,200}$/;

/** A path of the console to go on to, or the list of keys: nobody is sent to another site (ASVS 3.7.2). */
export function localPath(text: string | undefined): string {
  return text !== undefined && LOCAL_PATH.test(text) ? text : "/keys";
}

/** Where to enter the password again first, or null when that was done lately. */
export function confirmFirst(
  c: ConsoleContext,
  nowMs: number,
  next: string,
): Response | null {
  return isStale(c.get("signedIn"), nowMs)
    ? c.redirect(`/confirm?next=${encodeURIComponent(next)}`, 303)
    : null;
}
