/** What happens before and after the handler of a route. */
import { siteOf } from "@gateway/shared/process/client_address";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import type { Principal } from "@gateway/shared/keys/record";
import type { Exchange } from "../http/exchange.ts";
import { allowOrigins, BYTES_HEADERS, sendBytes } from "../http/responses.ts";
import { authenticate } from "../keys/authenticate.ts";
import { credentialOf, isAnthropic } from "../keys/credential.ts";
import type { Caller } from "../limits/callers/caller.ts";
import {
  type AuthenticatedCall,
  type Call,
  type CallEnd,
  refused,
} from "../requests/call.ts";
import { usageEndpointOf } from "../requests/usage_endpoint.ts";
import { wishesOf } from "../requests/wishes.ts";
import type { AppDependencies } from "./dependencies.ts";
import { finish, sendFailure } from "./finish.ts";
import { notAllowed, notFound } from "./not_found.ts";
import { REFERENCE, sendReference } from "./reference.ts";
import type { Route } from "./route.ts";
import { createRouter, OTHER } from "./router.ts";

/** Liveness checks of load balancers. Not logged. */
const HEALTH = ["/health", "/healthz"];
const OK = new TextEncoder().encode("ok\n");
const TEXT = "text/plain; charset=utf-8";
const NO_CONTENT = 204;

/** The route of a request, among all routes. */
interface Way {
  readonly route: Route;
  readonly routes: readonly Route[];
}

/**
 * Returns what handles every request of the public API, at these routes and at those
 * that need no key. It never rejects.
 */
export function serveRoutes(
  routes: readonly Route[],
  deps: AppDependencies,
): (exchange: Exchange) => Promise<void> {
  const find = createRouter(routes, deps);
  return async (exchange) => {
    const { method, path, response } = exchange;
    const { route, id } = find(path);
    const call: Call = {
      exchange,
      requestId: newRequestId(),
      id,
      endpoint: usageEndpointOf(route.name),
      clientAddress: deps.clientAddress(
        exchange.socket.remoteAddress ?? "",
        exchange.headers["x-forwarded-for"]?.toString() ?? null,
      ),
      startedAtMs: deps.now(),
    };
    const requestId = publicRequestId(call.requestId);
    response.fixedHeaders["x-request-id"] = requestId;
    if (isAnthropic(exchange)) {
      response.envelope = "anthropic";
      // Where Anthropic's SDKs look for it.
      response.fixedHeaders["request-id"] = requestId;
    }
    if (deps.isDraining()) response.fixedHeaders.connection = "close";
    if (HEALTH.includes(path) && (method === "GET" || method === "HEAD")) {
      const headers = { ...BYTES_HEADERS, "content-type": TEXT };
      return sendBytes(response, OK, { headers });
    }
    exchange.onClose.push(() => {
      const durationMs = deps.now() - call.startedAtMs;
      deps.metrics.answered(route.name, response.statusCode, durationMs);
    });
    allowOrigins(deps.corsOrigins, exchange);
    if (method === "OPTIONS" && route !== OTHER) {
      response.sendHead(NO_CONTENT, { allow: route.allow }).end();
      return finish(call, null, deps);
    }
    await handle(call, { route, routes }, deps);
  };
}

/** Identifies the caller, then has the request handled. */
async function handle(
  call: Call,
  way: Way,
  deps: AppDependencies,
): Promise<void> {
  const { route } = way;
  let principal: Caller | null = null;
  let end: CallEnd;
  try {
    if (isPublic(call, route)) end = answerPublic(call, route);
    else {
      const { keyId, ownerId } = await identify(call, deps);
      principal = { keyId, ownerId, clientAddress: call.clientAddress };
      const wishes = await wishesOf(call, principal, deps);
      const { endsByMs, isBatch, keep } = wishes;
      const authenticatedCall = { ...call, principal, endsByMs, isBatch, keep };
      const handler = route.handlers[call.exchange.method];
      end = handler === undefined
        ? await refuseWay(authenticatedCall, way, deps)
        : await handler(authenticatedCall, deps);
    }
  } catch (error) {
    end = refused(error);
  }
  if (end.type === "running") return;
  const failure = end.type === "refused"
    ? { model: end.model, error: sendFailure(call, end.error, deps) }
    : null;
  finish(principal === null ? call : { ...call, principal }, failure, deps);
}

/** Whether it needs no key. */
function isPublic({ exchange: { path } }: Call, route: Route): boolean {
  const isBelow = path === "/v1" || path.startsWith("/v1/");
  return route === REFERENCE || (route === OTHER && !isBelow);
}

/**
 * Finds whose key it is. A caller without a key cannot even find out which paths exist
 * under `/v1`.
 */
function identify(
  { exchange, clientAddress }: Call,
  { keys }: AppDependencies,
): Promise<Principal> {
  const address = () => siteOf(clientAddress);
  return authenticate(
    credentialOf(exchange),
    (hash) => keys.find(hash, address),
  );
}

/** Rejects with the error of a call whose method or path no route has. */
async function refuseWay(
  { exchange, principal }: AuthenticatedCall,
  { route, routes }: Way,
  { admission }: AppDependencies,
): Promise<never> {
  await admission.modelsOf(principal, null);
  if (route !== OTHER) throw notAllowed(exchange, route);
  const paths = routes.flatMap(({ path }) =>
    typeof path === "string" ? [path] : []
  );
  const list = new Intl.ListFormat("en").format(paths);
  throw notFound(exchange, `This service has ${list}.`);
}

/** Answers what needs no key. Throws the `ApiError` of a path that does not exist. */
function answerPublic(call: Call, route: Route): CallEnd {
  const { exchange } = call;
  if (route !== REFERENCE) {
    throw notFound(exchange, "All paths begin with /v1.");
  }
  const isAllowed = Object.hasOwn(route.handlers, exchange.method);
  if (!isAllowed) throw notAllowed(exchange, route);
  return sendReference(call);
}
