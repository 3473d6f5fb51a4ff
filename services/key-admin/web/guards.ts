import { newRequestId } from "@gateway/shared/process/ids";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import type { MiddlewareHandler } from "hono";
import { type ConsoleDeps, type ConsoleEnv, Refused } from "./context.ts";
import { readCookie } from "./session.ts";

/** What every request passes, in the order of `app.tsx`. */

type Guard = MiddlewareHandler<ConsoleEnv>;

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "manifest-src 'self'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "object-src 'none'",
].join("; ");

/** ASVS 3.4: the same headers on every answer, errors and files included. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "strict-transport-security": "max-age=31536000; includeSubDomains",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Not "no-referrer": with it browsers send "Origin: null" with our own forms.
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy":
    "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

/** Gives the request an id and every answer its headers. Pages are never cached (ASVS 14.3.2). */
export const baseHeaders: Guard = async (c, next) => {
  const requestId = newRequestId();
  c.set("requestId", requestId);
  await next();
  for (const [name, value] of Object.entries(SECURITY_HEADERS)) {
    c.res.headers.set(name, value);
  }
  c.res.headers.set("x-request-id", requestId);
  if (!c.res.headers.has("cache-control")) {
    c.res.headers.set("cache-control", "no-store");
  }
};

/** Answers only under the configured name, against DNS rebinding and poisoned links. */
export function hostGuard(publicUrl: URL): Guard {
  return async (c, next) => {
    if (!URL.canParse(c.req.url)) {
      throw new Refused(400, "The Host header cannot be read", {
        back: publicUrl.origin,
      });
    }
    const isOurs = c.req.header("host") === publicUrl.host &&
      new URL(c.req.url).host === publicUrl.host;
    if (!isOurs) {
      const { origin } = publicUrl;
      throw new Refused(
        421,
        `This is not the address of the console. Use ${origin}`,
        { back: origin },
      );
    }
    await next();
  };
}

/** API keys are for the API (API5) and open nothing here, neither as a bearer credential nor as a cookie. */
export function noKeys(deps: Pick<ConsoleDeps, "publicUrl">): Guard {
  return async (c, next) => {
    const isKey = c.req.header("authorization") !== undefined ||
      isWellFormedKey(readCookie(c, deps, "sid"));
    if (isKey) {
      throw new Refused(401, "The console does not accept API keys");
    }
    await next();
  };
}

/**
 * Lets a change through only from our own pages (ASVS 3.5.1). Browsers say where
 * a request comes from in `Sec-Fetch-Site`, older ones in `Origin`; a request that
 * says neither is refused. Forms also carry the session's token.
 */
export function crossSiteGuard(publicUrl: URL): Guard {
  return async (c, next) => {
    if (isReading(c.req.method)) return await next();
    const site = c.req.header("sec-fetch-site");
    const origin = c.req.header("origin");
    const isOurs = (site === undefined || site === "same-origin") &&
      (origin === undefined || origin === publicUrl.origin) &&
      (site !== undefined || origin !== undefined);
    if (!isOurs) throw new Refused(403, "This request came from another site");
    await next();
  };
}

const isReading = (method: string): boolean =>
  method === "GET" || method === "HEAD";
