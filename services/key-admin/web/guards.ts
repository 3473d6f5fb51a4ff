/** Guards that every request passes, in the order of `app.tsx`. */

import { newRequestId } from "@gateway/shared/process/ids";
import { createMiddleware } from "hono/factory";
import { type ConsoleContext, type ConsoleEnv, Refused } from "./context.ts";

/**
 * Returns what a page may load and do; `more` has further sources of images or audio.
 */
export const securityPolicy = (more: Readonly<Record<string, string>> = {}) =>
  Object.entries({
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    ...more,
  }).map(([directive, sources]) => `${directive} ${sources}`).join("; ");

/** ASVS 3.4: the same headers on every answer, errors and files included. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": securityPolicy(),
  "strict-transport-security": "max-age=31536000; includeSubDomains",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Not "no-referrer": with that, browsers send "Origin: null" with our own forms.
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy":
    "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

/**
 * Assigns the request an id and adds headers to every response, unless it has its own.
 * Pages are never cached (ASVS 14.3.2).
 */
export const baseHeaders = createMiddleware<ConsoleEnv>(async (c, next) => {
  const requestId = newRequestId();
  c.set("requestId", requestId);
  await next();
  const { headers } = c.res;
  const all = {
    ...SECURITY_HEADERS,
    "x-request-id": requestId,
    "cache-control": "no-store",
  };
  for (const [name, value] of Object.entries(all)) {
    if (!headers.has(name)) headers.set(name, value);
  }
});

/**
 * Answers only requests for the configured name, against DNS rebinding and poisoned
 * links.
 */
export function checkHost(c: ConsoleContext): void {
  const { host, origin } = c.var.deps.publicUrl;
  const names = [c.req.header("host"), URL.parse(c.req.url)?.host];
  if (names.some((name) => name !== host)) {
    const message =
      `The console does not answer at this address. Use ${origin}`;
    throw new Refused(421, message, { back: origin });
  }
}

/**
 * API keys are for the API (API5): a program with the wrong address learns that here.
 */
export function checkNoKey(c: ConsoleContext): void {
  if (!/^bearer sk-/i.test(c.req.header("authorization") ?? "")) return;
  const message =
    "The console does not accept API keys. Sign in with your e-mail address instead";
  throw new Refused(401, message);
}

/**
 * Lets a change through only from our own pages (ASVS 3.5.1). Browsers send the
 * origin of a request in `Sec-Fetch-Site`, older ones in `Origin`; a request with
 * neither is refused.
 */
export function checkSite(c: ConsoleContext): void {
  const site = c.req.header("sec-fetch-site");
  const origin = c.req.header("origin");
  const isOurs = (site ?? "same-origin") === "same-origin" &&
    (origin ?? c.var.deps.publicUrl.origin) === c.var.deps.publicUrl.origin &&
    (site !== undefined || origin !== undefined);
  if (!isOurs && !["GET", "HEAD"].includes(c.req.method)) {
    const message =
      "This request came from another site. Open the console and try again there";
    throw new Refused(403, message);
  }
}
