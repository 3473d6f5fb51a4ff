/** How much of a request is written into the log and repeated to its caller. */
import type { Context } from "hono";
import type { EdgeEnv } from "./edge_env.ts";

/** Both are the caller's words, and may be of any length. */
const METHOD_CHARS_MAX = 20;
const PATH_CHARS_MAX = 200;

/** The method, cut short. */
export function shownMethod(c: Context<EdgeEnv>): string {
  return c.req.method.slice(0, METHOD_CHARS_MAX);
}

/** The path, cut short and without the query, which may hold secrets. */
export function shownPath(c: Context<EdgeEnv>): string {
  return c.req.path.slice(0, PATH_CHARS_MAX);
}
