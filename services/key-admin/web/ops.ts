import type { RedisLink } from "@gateway/shared/redis/link";

/** Health and readiness, on a port of their own that is never public (ASVS 13.4.5). */
export function createOps(
  { redis, writer }: { redis: RedisLink; writer: RedisLink },
): (request: Request) => Response {
  return (request) => {
    switch (new URL(request.url).pathname) {
      case "/healthz":
        return answer(200, { status: "ok" });
      case "/readyz": {
        const isReady = redis.state === "ready" && writer.state === "ready";
        return answer(isReady ? 200 : 503, {
          status: isReady ? "ready" : "not ready",
          redis: redis.state,
          writer: writer.state,
        });
      }
      default:
        return answer(404, { status: "not found" });
    }
  };
}

function answer(status: number, body: Record<string, string>): Response {
  return Response.json(body, {
    status,
    headers: { "cache-control": "no-store" },
  });
}
