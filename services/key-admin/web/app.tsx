import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { Hono } from "hono";
import { NotDurable } from "../domain/store/durability.ts";
import type {
  ConsoleContext,
  ConsoleDeps,
  ConsoleEnv,
  SignedIn,
} from "./context.ts";
import {
  baseHeaders,
  crossSiteGuard,
  formGuard,
  hostGuard,
  noKeys,
} from "./guards.ts";
import { RefusedPage } from "./pages/refused_page.tsx";
import { localPath } from "./paths.ts";
import { Refused } from "./refused.ts";
import { route } from "./route.ts";
import { accountRoutes } from "./routes/account.tsx";
import { confirmRoutes } from "./routes/confirm.tsx";
import { keyChangeRoutes } from "./routes/key_changes.tsx";
import { keyRoutes } from "./routes/keys.tsx";
import { linkRoutes } from "./routes/links.tsx";
import { oidcRoutes } from "./routes/oidc.ts";
import { reportRoutes } from "./routes/reports.tsx";
import { secondFactorRoutes } from "./routes/second_factor.tsx";
import { signInRoutes } from "./routes/sign_in.tsx";

/** The console: every route and what stands before it. */
export function createConsole(deps: ConsoleDeps): Hono<ConsoleEnv> {
  const app = new Hono<ConsoleEnv>();
  app.use(baseHeaders);
  app.use(hostGuard(deps.publicUrl));
  app.use(noKeys(deps.publicUrl));
  app.use(crossSiteGuard(deps.publicUrl));
  app.use(formGuard());

  route(app, deps, "/", { GET: (c) => c.redirect("/keys", 302) });
  route(app, deps, "/assets/:version/:name", { GET: (c) => asset(c, deps) });
  signInRoutes(app, deps);
  linkRoutes(app, deps);
  oidcRoutes(app, deps);
  keyRoutes(app, deps);
  keyChangeRoutes(app, deps);
  reportRoutes(app, deps);
  accountRoutes(app, deps);
  secondFactorRoutes(app, deps);
  confirmRoutes(app, deps);

  app.notFound((c) =>
    refuse(c, deps, new Refused(404, "There is no such page"))
  );
  app.onError((error, c) => refuse(c, deps, asRefused(error, deps, c)));
  return app;
}

/** The console's own files; their paths name their content. */
function asset(c: ConsoleContext, { assets }: ConsoleDeps): Response {
  const file = assets.files.get(new URL(c.req.url).pathname);
  if (file === undefined) throw new Refused(404, "There is no such file");
  return c.body(file.body, 200, {
    "content-type": file.type,
    "cache-control": "public, max-age=31536000, immutable",
  });
}

function asRefused(
  error: unknown,
  { log }: ConsoleDeps,
  c: ConsoleContext,
): Refused {
  const requestId = c.get("requestId");
  if (error instanceof Refused) {
    noteRefusal(error, log, c);
    return error;
  }
  if (error instanceof RedisUnavailableError) {
    log.warn("redis_unavailable", { requestId, error });
    return unavailable(error, c);
  }
  if (error instanceof NotDurable) {
    log.error("not_durable", { requestId, error });
    return new Refused(
      503,
      "The change was made but is not confirmed to be on disk. Look whether it is there",
      { headers: { "retry-after": "1" } },
    );
  }
  log.error("request_failed", { requestId, error });
  return new Refused(500, "Something went wrong on our side");
}

/** Of a change that was under way nobody knows whether it was made, so nobody is told to repeat it. */
function unavailable(
  { mayHaveRun }: RedisUnavailableError,
  c: ConsoleContext,
): Refused {
  const isChange = c.req.method === "POST";
  return new Refused(
    503,
    isChange && mayHaveRun
      ? "The store did not answer in time. What you asked for may or may not have been done: look before you try again"
      : "The store does not answer. Try again in a moment",
    {
      headers: { "retry-after": "1" },
      back: isChange ? "/keys" : addressOf(c),
    },
  );
}

/** Path and query of a request, if it is one that a page may link to. */
function addressOf(c: ConsoleContext): string {
  return localPath(c.req.url.replace(/^[^/]*\/\/[^/]*/, ""));
}

/**
 * Says who was kept from something (ASVS 16.3.2, 16.3.3); the line of the request
 * says what it was. Only the status is told: the text may repeat what was sent.
 */
function noteRefusal(
  { status }: Refused,
  log: ConsoleDeps["log"],
  c: ConsoleContext,
): void {
  const signedIn: SignedIn | undefined = c.get("signedIn");
  log.warn("request_refused", {
    requestId: c.get("requestId"),
    status,
    ownerId: signedIn?.session.ownerId ?? null,
  });
}

async function refuse(
  c: ConsoleContext,
  { assets }: ConsoleDeps,
  refused: Refused,
): Promise<Response> {
  return await c.html(
    <RefusedPage
      assets={assets}
      status={refused.status}
      message={refused.message}
      requestId={c.get("requestId") ?? ""}
      back={refused.back}
      here={addressOf(c)}
    />,
    refused.status,
    refused.headers,
  );
}
