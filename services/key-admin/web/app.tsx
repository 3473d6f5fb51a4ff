import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { Hono } from "hono";
import { NotDurable } from "../domain/store/durability.ts";
import { accountRoutes } from "./account_page.tsx";
import { auditRoutes } from "./audit_page.tsx";
import {
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
  type Handler,
  Refused,
  type Routes,
  type SignedIn,
} from "./context.ts";
import { baseHeaders, crossSiteGuard, hostGuard, noKeys } from "./guards.ts";
import { formGuard } from "./forms.ts";
import { keyActionRoutes } from "./key_actions.tsx";
import { keyFormRoutes } from "./key_form_page.tsx";
import { keyRoutes } from "./key_page.tsx";
import { keyListRoutes } from "./keys_page.tsx";
import { Card } from "./layout.tsx";
import { oidcRoutes } from "./oidc.ts";
import { secondFactorRoutes } from "./second_factor.tsx";
import { localPath, requireSession } from "./session.ts";
import { signInRoutes } from "./sign_in_page.tsx";
import { usageRoutes } from "./usage_page.tsx";

/** Routes that need no sign-in. Every other route is private. */
const PUBLIC = [
  "/",
  "/assets/:version/:name",
  "/sign-in",
  "/sign-in/oidc",
  "/sign-in/oidc/callback",
  "/link/:secret",
];

/** Every route. If two match, the first one answers. */
const ROUTES: Routes = {
  "/": { GET: (c) => c.redirect("/keys", 302) },
  "/assets/:version/:name": { GET: asset },
  ...signInRoutes,
  ...oidcRoutes,
  ...keyListRoutes,
  ...keyFormRoutes,
  ...keyRoutes,
  ...keyActionRoutes,
  ...usageRoutes,
  ...auditRoutes,
  ...accountRoutes,
  ...secondFactorRoutes,
};

/** The console: its guards and its routes. */
export function createConsole(deps: ConsoleDeps): Hono<ConsoleEnv> {
  const app = new Hono<ConsoleEnv>();
  app.use(baseHeaders);
  app.use(hostGuard(deps.publicUrl));
  app.use(noKeys(deps));
  app.use(crossSiteGuard(deps.publicUrl));
  app.use(formGuard());
  addRoutes(app, deps, ROUTES);
  app.notFound((c) =>
    refuse(c, deps, new Refused(404, "This page does not exist"))
  );
  app.onError((error, c) => refuse(c, deps, asRefused(error, deps, c)));
  return app;
}

/** Every other method of a path is answered 405 with `Allow` (ASVS 4.1.4). */
export function addRoutes(
  app: Hono<ConsoleEnv>,
  deps: ConsoleDeps,
  routes: Routes,
): void {
  for (const [path, { GET, POST }] of Object.entries(routes)) {
    const guarded = (handler: Handler) => async (c: ConsoleContext) =>
      (PUBLIC.includes(path) ? null : await requireSession(c, deps)) ??
        await handler(c, deps);
    if (GET !== undefined) app.get(path, guarded(GET));
    if (POST !== undefined) app.post(path, guarded(POST));
    const allow = [GET && "GET, HEAD", POST && "POST"].filter(Boolean);
    app.all(path, () => {
      throw new Refused(405, "This page does not support that method", {
        headers: { allow: allow.join(", ") },
      });
    });
  }
}

/** The console's own files; their paths name their content. */
function asset(c: ConsoleContext, { assets }: ConsoleDeps): Response {
  const file = assets.files.get(c.req.path);
  if (file === undefined) throw new Refused(404, "This file does not exist");
  return c.body(file.body, 200, {
    "content-type": file.type,
    "cache-control": "public, max-age=31536000, immutable",
  });
}

/** Turns an error into a refusal and logs it (ASVS 16.3.2, 16.3.3). */
function asRefused(
  error: unknown,
  { log }: ConsoleDeps,
  c: ConsoleContext,
): Refused {
  const requestId = c.get("requestId");
  if (error instanceof Refused) {
    const signedIn: SignedIn | undefined = c.get("signedIn");
    log.warn("request_refused", {
      requestId,
      status: error.status,
      ownerId: signedIn?.session.ownerId ?? null,
    });
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
      "The change was made but is not confirmed to be on disk. Check whether it is there",
      { headers: { "retry-after": "1" } },
    );
  }
  log.error("request_failed", { requestId, error });
  return new Refused(500, "Something went wrong on our side");
}

/** Does not suggest repeating a change that may have been made. */
function unavailable(
  { mayHaveRun }: RedisUnavailableError,
  c: ConsoleContext,
): Refused {
  const isChange = c.req.method === "POST";
  return new Refused(
    503,
    isChange && mayHaveRun
      ? "The database did not answer in time. Your change may or may not have been made. Check before you try again"
      : "The database does not answer. Try again in a moment",
    {
      headers: { "retry-after": "1" },
      back: isChange ? "/keys" : addressOf(c),
    },
  );
}

/** Path and query of the request, if safe to link to. */
const addressOf = (c: ConsoleContext): string =>
  localPath(c.req.url.replace(/^[^/]*\/\/[^/]*/, ""));

const TITLES: ReadonlyMap<number, string> = new Map([
  [403, "Not allowed"],
  [404, "Not found"],
  [429, "Too many requests"],
  [503, "Temporarily unavailable"],
]);

const BACK_LABELS: ReadonlyMap<string, string> = new Map([
  ["/sign-in", "Go to sign-in"],
  ["/keys", "Go to your keys"],
]);

/** Shows why a request was refused, with a link to continue. */
function refuse(
  c: ConsoleContext,
  { assets }: ConsoleDeps,
  { status, message, headers, back }: Refused,
): Response | Promise<Response> {
  const label = back === addressOf(c)
    ? "Try again"
    : URL.canParse(back)
    ? "Go to the console"
    : BACK_LABELS.get(back) ?? "Go back";
  return c.html(
    <Card title={TITLES.get(status) ?? "That did not work"} assets={assets}>
      <p>{message}.</p>
      <p class="help">{status} · request {c.get("requestId") ?? ""}</p>
      <div class="row end">
        <a class="button primary" href={back}>{label}</a>
      </div>
    </Card>,
    status,
    headers,
  );
}
