/** Answers to requests that no route serves. */
import type { Context } from "hono";
import { publicRequestId } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import type { EdgeEnv } from "./edge_env.ts";
import { errorResponse, REQUEST_ID_HEADER } from "./http/responses.ts";
import { shownMethod, shownPath } from "./shown_request.ts";

/** 204: what a path answers to. */
export function optionsAllowed(
  c: Context<EdgeEnv>,
  methods: string,
): Response {
  return new Response(null, {
    status: 204,
    headers: {
      allow: methods,
      [REQUEST_ID_HEADER]: publicRequestId(c.var.requestId),
    },
  });
}

/** 405 for a path that is there. */
export function methodNotAllowed(
  c: Context<EdgeEnv>,
  methods: string,
): Response {
  const message = `Not allowed to ${shownMethod(c)} on ${shownPath(c)}. ` +
    `Allowed: ${methods}.`;
  return errorResponse(
    new ApiError("method_not_allowed", message, {
      headers: { allow: methods },
    }),
    c.var.requestId,
  );
}

/**
 * 404 in OpenAI's words, and where to look instead: most who come here have an SDK
 * that calls another API than chat completions, or a base URL without `/v1`.
 */
export function notFound(c: Context<EdgeEnv>, hint: string): Response {
  const message = `Invalid URL (${shownMethod(c)} ${shownPath(c)}). ${hint}`;
  return errorResponse(new ApiError("not_found", message), c.var.requestId);
}
