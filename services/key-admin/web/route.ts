import type { Hono } from "hono";
import type { ConsoleContext, ConsoleEnv } from "./context.ts";
import { Refused } from "./refused.ts";

type Handler = (c: ConsoleContext) => Response | Promise<Response>;

/** Handlers of one path by method. Every other method is answered 405 with `Allow` (ASVS 4.1.4). */
export function route(
  app: Hono<ConsoleEnv>,
  path: string,
  handlers: { GET?: Handler; POST?: Handler },
): void {
  const { GET, POST } = handlers;
  if (GET !== undefined) app.get(path, GET);
  if (POST !== undefined) app.post(path, POST);
  const allow = [GET && "GET, HEAD", POST && "POST"].filter(Boolean).join(", ");
  app.all(path, () => {
    throw new Refused(405, "This is not possible here", { headers: { allow } });
  });
}
