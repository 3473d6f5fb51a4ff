import { createHash } from "node:crypto";
import type { ClientAddress } from "@gateway/shared/process/client_address";
import { newRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { counter, type MetricRegistry } from "@gateway/shared/process/metrics";
import type { Hono } from "hono";
import { createMiddleware } from "hono/factory";
import { TRY_LIMITS } from "../domain/try/key.ts";
import { type ConsoleContext, type ConsoleEnv, Refused } from "./context.ts";

/** The console as an HTTP server: its files, its metrics, a log line per request, and what every request passes in the order of `app.tsx`. */

export const CONSOLE_METRICS = {
  responses: counter("gateway_console_responses_total", {
    help: "Responses of the console by status class: `2xx` to `5xx`.",
    labels: ["class"],
  }),
} as const;

export type ServeHandler = (
  request: Request,
  info: Deno.ServeHandlerInfo<Deno.NetAddr>,
) => Promise<Response>;

/** Finds the client's address, counts the response and logs the request, unless it got a file of the console. */
export function createHandler(
  app: Hono<ConsoleEnv>,
  { clientAddress, log, registry }: {
    clientAddress: ClientAddress;
    log: Log;
    registry: MetricRegistry;
  },
): ServeHandler {
  const { responses } = registry.record(CONSOLE_METRICS);
  // Start at zero, so that a rate can be computed.
  for (const name of ["2xx", "3xx", "4xx", "5xx"]) responses.with(name).add(0);
  return async (request, info) => {
    const startMs = performance.now();
    const remoteIp = clientAddress(
      info.remoteAddr.hostname,
      request.headers.get("x-forwarded-for"),
    );
    const response = await app.fetch(request, { remoteIp });
    responses.with(`${Math.floor(response.status / 100)}xx`).add();
    const path = loggedPath(request.url);
    if (path.startsWith("/assets/") && response.ok) return response;
    log.info("request", {
      requestId: response.headers.get("x-request-id"),
      clientAddress: remoteIp,
      method: request.method,
      path,
      status: response.status,
      durationMs: Math.round(performance.now() - startMs),
    });
    return response;
  };
}

/** The path without secrets: no query, no secret of a link. Empty when the URL is malformed. */
function loggedPath(url: string): string {
  const path = URL.canParse(url) ? new URL(url).pathname : "";
  return path.replace(/^\/link\/.*/s, "/link/…").slice(0, 200);
}

/** The console's own files. Their paths change with their content, so browsers may keep them forever. */
export type Assets = Awaited<ReturnType<typeof readAssets>>;

const VERSION_CHARS = 12;

export async function readAssets() {
  const files = new Map<string, { body: string; type: string }>();
  const add = async (name: string, mediaType: string) => {
    const file = new URL(`assets/${name}`, import.meta.url);
    const body = await Deno.readTextFile(file);
    const digest = createHash("sha256").update(body).digest("hex");
    const path = `/assets/${digest.slice(0, VERSION_CHARS)}/${name}`;
    files.set(path, { body, type: `${mediaType}; charset=utf-8` });
    return path;
  };
  return {
    stylesheet: await add("console.css", "text/css"),
    script: await add("console.js", "text/javascript"),
    tryScript: await add("try.js", "text/javascript"),
    icon: await add("icon.svg", "image/svg+xml"),
    files,
  };
}

/** What a page may load and do. `more`: other sources of images or audio. */
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
  // Not "no-referrer": with it browsers send "Origin: null" with our own forms.
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy":
    "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

/** Assigns the request an id and adds headers to every response, unless it has its own. Pages are never cached (ASVS 14.3.2). */
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

/** Answers only requests for the configured name, against DNS rebinding and poisoned links. */
export function checkHost(c: ConsoleContext): void {
  const { host, origin } = c.var.deps.publicUrl;
  const asked = [c.req.header("host"), URL.parse(c.req.url)?.host];
  if (asked.some((name) => name !== host)) {
    throw new Refused(
      421,
      `The console does not answer at this address. Use ${origin}`,
      { back: origin },
    );
  }
}

/** API keys are for the API (API5): a program with the wrong address learns that here. */
export function checkNoKey(c: ConsoleContext): void {
  if (!/^bearer sk-/i.test(c.req.header("authorization") ?? "")) return;
  throw new Refused(
    401,
    "The console does not accept API keys. Sign in with your e-mail address instead",
  );
}

/** Bounds the memory that uploads and whole answers of the page "Try it" take. */
export const holdGuard = () => {
  let held = 0;
  return createMiddleware<ConsoleEnv>(async (c, next) => {
    const isHeld = c.req.method === "POST";
    if (isHeld && held >= TRY_LIMITS.heldAtOnce) {
      throw new Refused(
        503,
        "Try it is handling too many requests. Try again in a minute",
        { headers: { "retry-after": "60" } },
      );
    }
    if (isHeld) held++;
    try {
      await next();
    } finally {
      if (isHeld) held--;
    }
  });
};

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
    throw new Refused(
      403,
      "This request came from another site. Open the console and try again there",
    );
  }
}
