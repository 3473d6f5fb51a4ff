import type { Hono } from "hono";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "./context.ts";
import { Refused } from "./refused.ts";
import { requireSession } from "./session_guard.ts";

type Handler = (c: ConsoleContext) => Response | Promise<Response>;

/** What may be had without signing in. Every other route is private. */
const PUBLIC = [
  "/",
  "/assets/:version/:name",
  "/sign-in",
  "/sign-in/oidc",
  "/sign-in/oidc/callback",
  "/link/:secret",
];

/** Handlers of one path by method. Every other method is answered 405 with `Allow` (ASVS 4.1.4). */
export function route(
  app: Hono<ConsoleEnv>,
  deps: ConsoleDeps,
  path: string,
  { GET, POST }: { GET?: Handler; POST?: Handler },
): void {
  const guarded = (handler: Handler): Handler =>
    PUBLIC.includes(path)
      ? handler
      : async (c) => await requireSession(c, deps) ?? await handler(c);
  if (GET !== undefined) app.get(path, guarded(GET));
  if (POST !== undefined) app.post(path, guarded(POST));
  const allow = [GET && "GET, HEAD", POST && "POST"].filter(Boolean).join(", ");
  app.all(path, () => {
    throw new Refused(405, "This is not possible here", { headers: { allow } });
  });
}
