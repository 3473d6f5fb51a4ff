/** Answers only for the names this service goes by. */
import type { MiddlewareHandler } from "hono";
import { ApiError } from "@gateway/shared/openai/error";
import type { EdgeEnv } from "./edge_env.ts";

/**
 * Refuses requests for other hosts with 421: by the `Host` header, and by the
 * target where that is a whole URL. Without a list every name will do. A name in
 * the list without a port stands for all ports.
 */
export function allowHosts(
  hosts: readonly string[],
): MiddlewareHandler<EdgeEnv> {
  const allowed = new Set(hosts.map((host) => host.toLowerCase()));
  const isAllowed = (host: string) =>
    allowed.has(host) || allowed.has(host.replace(/:\d+$/, ""));
  return async (c, next) => {
    const named = c.req.raw.headers.get("host")?.toLowerCase() ?? "";
    const target = URL.parse(c.req.url)?.host ?? "";
    if (!isAllowed(named) || !isAllowed(target)) {
      throw new ApiError(
        "misdirected_request",
        "This server does not answer for the host of this request.",
      );
    }
    await next();
  };
}
