/** One path of the API: who handles its methods. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { CallHandler } from "../requests/call.ts";
import type { Endpoint, UploadEndpoint } from "../requests/endpoint.ts";
import { runRequest } from "../requests/run_request.ts";
import { runUpload } from "../requests/upload/run_upload.ts";
import type { AppDependencies } from "./dependencies.ts";

/** Answers a call whose key was found. */
export type Handler = CallHandler<AppDependencies>;
/** Handlers by method. */
export type Handlers = { readonly [method: string]: Handler };

/** A path of the API, and who handles its methods. */
export interface Route {
  /** Its name in metrics. */
  readonly name: string;
  /** A pattern where part of the path varies: its first group. */
  readonly path: string | RegExp;
  readonly handlers: Handlers;
  /** Its methods, for the header `Allow`. `OPTIONS` needs no key: it reveals these. */
  readonly allow: string;
}

/** A route with the header `Allow` of its handlers. */
export function routeOf(
  name: string,
  path: string | RegExp,
  handlers: Handlers,
): Route {
  const allow = [...Object.keys(handlers), "OPTIONS"].join(", ");
  return { name, path, handlers, allow };
}

/** POST of a request in JSON. */
export const json = <R extends JobRequest>(
  endpoint: Endpoint<R>,
): Handlers => ({
  POST: (call, deps) => runRequest(call, endpoint, deps),
});

/** POST of a form with a file. */
export const form = <R extends JobRequest>(
  endpoint: UploadEndpoint<R>,
): Handlers => ({ POST: (call, deps) => runUpload(call, endpoint, deps) });

/** GET, and HEAD by the same handler. */
export const read = (handler: Handler): Handlers => ({
  GET: handler,
  HEAD: handler,
});
