import { timingSafeEqual } from "node:crypto";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { DEVICE_SECONDS } from "../domain/sign_in/attempts.ts";
import { SESSION_LIMITS } from "../domain/sign_in/sessions.ts";
import type { Admitted } from "../domain/sign_in/sign_in.ts";
import {
  type ConsoleContext,
  type ConsoleDeps,
  Refused,
  type SignedIn,
} from "./context.ts";

/** Cookies and sessions. */

/** The name of the session's token in every form. */
export const FORM_TOKEN = "form_token";

type CookieName = "sid" | "device" | "oidc";
type PublicUrl = Pick<ConsoleDeps, "publicUrl">;

const SECONDS: Record<CookieName, number> = {
  sid: SESSION_LIMITS.absoluteMs / 1_000,
  device: DEVICE_SECONDS,
  oidc: 600,
};

const isSecure = ({ publicUrl }: PublicUrl): boolean =>
  publicUrl.protocol === "https:";

/**
 * `__Host-` keeps other hosts of the domain from planting a cookie (ASVS 3.3.1). It
 * needs TLS, which a console on localhost may do without.
 */
const fullName = (deps: PublicUrl, name: CookieName): string =>
  isSecure(deps) ? `__Host-${name}` : name;

const attributes = (deps: PublicUrl) => ({
  path: "/",
  httpOnly: true,
  secure: isSecure(deps),
  sameSite: "Lax",
} as const);

/** The value of one of our cookies, empty without one. */
export const readCookie = (
  c: ConsoleContext,
  deps: PublicUrl,
  name: CookieName,
): string => getCookie(c, fullName(deps, name)) ?? "";

export function writeCookie(
  c: ConsoleContext,
  deps: PublicUrl,
  name: CookieName,
  value: string,
): void {
  const options = { ...attributes(deps), maxAge: SECONDS[name] };
  setCookie(c, fullName(deps, name), value, options);
}

export function clearCookie(
  c: ConsoleContext,
  deps: PublicUrl,
  name: CookieName,
): void {
  deleteCookie(c, fullName(deps, name), attributes(deps));
}

/** Lets only signed-in owners through; others are sent to the sign-in page and come back. */
export async function requireSession(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response | null> {
  const signedIn = await findSignedIn(c, deps);
  if (signedIn === null) {
    if (readCookie(c, deps, "sid") !== "") clearCookie(c, deps, "sid");
    const path = c.req.method === "GET" ? c.req.path : "/keys";
    return c.redirect(`/sign-in?next=${encodeURIComponent(path)}`, 302);
  }
  if (c.req.method === "POST") {
    checkFormToken(c.get("form"), signedIn.session.formToken);
  }
  c.set("signedIn", signedIn);
  return null;
}

/** The owner behind the session cookie, or null. */
export async function findSignedIn(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<SignedIn | null> {
  const session = await deps.sessions.find(readCookie(c, deps, "sid"));
  if (session === null) return null;
  const account = await deps.accounts.read(session.ownerId);
  return account === null ? null : { session, account };
}

function checkFormToken(form: URLSearchParams, expected: string): void {
  const encoder = new TextEncoder();
  const given = encoder.encode(form.get(FORM_TOKEN) ?? "");
  const wanted = encoder.encode(expected);
  if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) {
    throw new Refused(
      403,
      "This page belongs to an earlier session. Reload it",
    );
  }
}

/** A redirect to confirm the password, or null if it was entered within the last hour (ASVS 7.5.3). */
export function confirmFirst(
  c: ConsoleContext,
  deps: ConsoleDeps,
  next: string,
): Response | null {
  const { checkedAtMs } = c.get("signedIn").session;
  return deps.now() - checkedAtMs < SESSION_LIMITS.freshMs
    ? null
    : c.redirect(`/confirm?next=${encodeURIComponent(next)}`, 303);
}

/** Fewer failures are taken for typing mistakes. */
const FAILURES_TOLD = 5;

/** Sets the cookies of a new session and ends the browser's previous one (ASVS 7.2.4). */
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
  writeCookie(c, deps, "sid", cookie);
  writeCookie(c, deps, "device", device);
  // Tell the owner that somebody else may be trying (ASVS 6.3.5).
  const told = failedBefore < FAILURES_TOLD ? next : "/keys?done=failed_tries";
  return c.redirect(told, 303);
}

const LOCAL_PATH = /^\/(?![/\\])[A-Za-z0-9_\-/.?=&%:]{0,200}$/;

/** The given path if it is one of the console's, else `/keys`: no redirects to other sites (ASVS 3.7.2). */
export function localPath(text: string | undefined): string {
  return text !== undefined && LOCAL_PATH.test(text) ? text : "/keys";
}
