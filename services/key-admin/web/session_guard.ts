import { timingSafeEqual } from "node:crypto";
import { SESSION_LIMITS } from "../domain/sign_in/sessions.ts";
import {
  type ConsoleContext,
  type ConsoleDeps,
  type SignedIn,
} from "./context.ts";
import { clearCookie, readCookie } from "./cookies.ts";
import { Refused } from "./refused.ts";

/** The name of the session's token in every form. */
export const FORM_TOKEN = "form_token";

/** Lets only signed-in owners through; others are sent to the sign-in page and come back. */
export async function requireSession(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response | null> {
  const signedIn = await findSignedIn(c, deps);
  if (signedIn === null) return toSignIn(c, deps);
  if (c.req.method === "POST") {
    checkFormToken(c.get("form"), signedIn.session.formToken);
  }
  c.set("signedIn", signedIn);
  return null;
}

/** The owner behind the session cookie, or null. */
export async function findSignedIn(
  c: ConsoleContext,
  { sessions, accounts, publicUrl }: ConsoleDeps,
): Promise<SignedIn | null> {
  const session = await sessions.find(readCookie(c, publicUrl, "sid"));
  if (session === null) return null;
  const account = await accounts.read(session.ownerId);
  return account === null ? null : { session, account };
}

/** Whether the password was entered so long ago that it must be entered again (ASVS 7.5.3). */
export function isStale({ session }: SignedIn, nowMs: number): boolean {
  return nowMs - session.checkedAtMs >= SESSION_LIMITS.freshMs;
}

function toSignIn(c: ConsoleContext, { publicUrl }: ConsoleDeps): Response {
  if (readCookie(c, publicUrl, "sid") !== "") clearCookie(c, publicUrl, "sid");
  const path = c.req.method === "GET" ? new URL(c.req.url).pathname : "/keys";
  return c.redirect(`/sign-in?next=${encodeURIComponent(path)}`, 302);
}

function checkFormToken(form: URLSearchParams, expected: string): void {
  const given = new TextEncoder().encode(form.get(FORM_TOKEN) ?? "");
  const wanted = new TextEncoder().encode(expected);
  const isRight = given.length === wanted.length &&
    timingSafeEqual(given, wanted);
  if (!isRight) {
    throw new Refused(403, "This page is from an earlier session: reload it");
  }
}
