/** The session of a request: its cookies, who has signed in, and who gets through. */

import { getCookie, setCookie } from "hono/cookie";
import { DEVICE_SECONDS } from "../../domain/sign_in/attempts.ts";
import { ProjectRefused } from "../../domain/projects/project_refused.ts";
import { SESSION_LIMITS } from "../../domain/sign_in/sessions.ts";
import type { SignedIn as Admitted } from "../../domain/sign_in/sign_in.ts";
import {
  type ConsoleContext,
  type Handler,
  Refused,
  type SignedIn,
} from "../context.ts";
import { signInAgain } from "../view/layout.tsx";

/** Our cookies and how long browsers keep them, in seconds. */
const COOKIES = {
  sid: SESSION_LIMITS.absoluteMs / 1_000,
  device: DEVICE_SECONDS,
  oidc: 600,
} as const;
type CookieName = keyof typeof COOKIES;

/**
 * `__Host-` keeps other hosts of the domain from planting a cookie (ASVS 3.3.1). It
 * needs TLS, which a console on localhost may do without.
 */
const prefixOf = (c: ConsoleContext) =>
  c.var.deps.publicUrl.protocol === "https:" ? { prefix: "host" as const } : {};

/** The value of one of our cookies, empty without one. */
export const readCookie = (c: ConsoleContext, name: CookieName): string =>
  getCookie(c, name, prefixOf(c).prefix) ?? "";

/** Sets one of our cookies; `null` removes it. */
export const writeCookie = (
  c: ConsoleContext,
  name: CookieName,
  value: string | null,
): void =>
  setCookie(c, name, value ?? "", {
    ...prefixOf(c),
    path: "/",
    httpOnly: true,
    sameSite: "Lax",
    maxAge: value === null ? 0 : COOKIES[name],
  });

/** The password in a form that was kept for it. */
export const CONFIRMED = "confirmed_password";

/**
 * Lets only signed-in owners through; others are sent to sign in, and then back. Their
 * forms are kept, except those of the account. A project that the path names exists
 * only for its members.
 */
export const behindSignIn = (handler: Handler): Handler => async (c) => {
  if (await recognize(c)) {
    const isProject = c.req.param("project") !== undefined;
    if (isProject && c.var.signedIn.membership === null) {
      throw new ProjectRefused("not_found");
    }
    return await handler(c);
  }
  if (readCookie(c, "sid") !== "") writeCookie(c, "sid", null);
  const { method, path } = c.req;
  const keeps = method === "POST" && !/^\/(account|sign-out)/.test(path);
  if (keeps) c.var.form.delete(CONFIRMED);
  if (keeps) return signInAgain(c, "/sign-in");
  const next = encodeURIComponent(method === "GET" ? path : "/keys");
  return c.redirect(`/sign-in?next=${next}`, 302);
};

/**
 * Who has signed in, by the cookie; null without a session that lasts, or when the
 * account is disabled. Counts as a use of the session.
 */
export async function findSignedIn(
  c: ConsoleContext,
): Promise<SignedIn | null> {
  const { sessions, owners, projects } = c.var.deps;
  const session = await sessions.find(readCookie(c, "sid"));
  if (session === null) return null;
  const projectId = c.req.param("project");
  // At once: whoever was removed can do nothing from the next request on.
  const [account, membership] = await Promise.all([
    owners.read(session.ownerId),
    projectId === undefined
      ? null
      : projects.membership(projectId, session.ownerId),
  ]);
  if (account === null || account.isDisabled) return null;
  return { session, account, membership };
}

/** Whether somebody has signed in, to whom pages then show their navigation. */
export async function recognize(c: ConsoleContext): Promise<boolean> {
  const signedIn = await findSignedIn(c);
  if (signedIn !== null) c.set("signedIn", signedIn);
  return signedIn !== null;
}

/** Lets only operators through; for everybody else the page does not exist (API5). */
export const forOperators = (handler: Handler): Handler =>
  behindSignIn((c) => {
    if (c.var.signedIn.account.isOperator) return handler(c);
    throw new Refused(404, "This page does not exist", { back: "/keys" });
  });

/** Whether the password was entered within the last hour (ASVS 7.5.3). */
export function isFresh(c: ConsoleContext): boolean {
  const { checkedAtMs } = c.var.signedIn.session;
  return c.var.deps.now() - checkedAtMs < SESSION_LIMITS.freshMs;
}

/** Fewer failures count as typing mistakes. */
const FAILURES_REPORTED = 5;

/**
 * Sets the cookies of a new session and ends the browser's previous one (ASVS 7.2.4).
 */
export async function enter(
  c: ConsoleContext,
  { cookie, device, failedBefore }: Admitted,
  next: string,
): Promise<Response> {
  const before = await findSignedIn(c);
  if (before !== null) {
    await c.var.deps.sessions.end(before.account.ownerId, before.session.id);
  }
  writeCookie(c, "sid", cookie);
  writeCookie(c, "device", device);
  // Warn the owner of possible guessing (ASVS 6.3.5).
  const isGuessed = failedBefore >= FAILURES_REPORTED;
  return c.redirect(isGuessed ? "/keys?done=failed_tries" : next, 303);
}

const LOCAL_PATH = /^\/(?![/\\])[A-Za-z0-9_\-/.?=&%:+]{0,200}$/;

/**
 * The path if it is one of the console's, else `/keys`: no redirects to other
 * sites (ASVS 3.7.2).
 */
export function localPath(text: string | undefined): string {
  return text !== undefined && LOCAL_PATH.test(text) ? text : "/keys";
}
