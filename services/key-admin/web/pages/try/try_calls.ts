/** The calls of the page "Try it" to the API, with the key of its session. */
import { parseJson } from "@gateway/shared/upstream/json";
import { z } from "zod";
import type { TryRequest } from "../../../domain/try/chat_forms.ts";
import type { ApiRequest } from "../../../domain/try/edge.ts";
import { tryKeyValue } from "../../../domain/try/key.ts";
import { TRY_KINDS } from "../../../domain/try/kinds.ts";
import { actorOf, type ConsoleContext, Refused } from "../../context.ts";
import { ownScopeOf } from "../../request/key_scope.ts";
import { readCookie } from "../../request/session.ts";

/** Sends a request to the API, with the file of the form. */
export const send = (c: ConsoleContext, path: string, request: TryRequest) =>
  ask(c, { path, request, file: c.var.file });

/** Asks about the video in the path. Those of other owners do not exist (API1). */
export async function askVideo(
  c: ConsoleContext,
  more = "",
): Promise<Response> {
  const id = c.req.param("id") ?? "";
  const isId = /^video_[0-9a-f]{32}$/.test(id);
  const path = `${TRY_KINDS.video.path}/${id}${more}`;
  const range = c.req.header("range");
  const response = isId ? await ask(c, { path, range }) : null;
  if (response !== null && response.status !== 404) return response;
  await response?.body?.cancel();
  throw new Refused(404, "This video does not exist");
}

/**
 * Asks the API with the key of this session. The request ends when the browser has
 * left.
 */
async function ask(c: ConsoleContext, request: ApiRequest): Promise<Response> {
  const { deps, signedIn: { session } } = c.var;
  const from = { cookie: readCookie(c, "sid"), actor: actorOf(c) };
  const { ownerId } = ownScopeOf(c);
  const key = await tryKeyValue(deps, { session, ownerId }, from);
  const { signal } = c.req.raw;
  return await deps.askApi(request, { key, signal });
}

/** The API's refusals of a request only because its answer is to be kept. */
const UNKEPT = z.object({
  error: z.object({ code: z.enum(["keep_unavailable", "keep_full"]) }),
});

/** Sends a request whose answer is kept; where that cannot be, like any other. */
export async function askKept(
  c: ConsoleContext,
  request: ApiRequest,
): Promise<Response> {
  const response = await ask(c, request);
  if (request.once === undefined || response.ok) return response;
  const text = await response.text();
  return UNKEPT.safeParse(parseJson(text)).success
    ? await ask(c, { ...request, once: undefined })
    : new Response(text, response);
}

/** Asks about the kept answer in the path. Those of other owners do not exist (API1). */
export async function askAnswer(
  c: ConsoleContext,
  more: Partial<ApiRequest> = {},
): Promise<Response> {
  const id = c.req.param("id") ?? "";
  const isId = /^req_[0-9a-f]{32}$/.test(id);
  const response = isId
    ? await ask(c, { path: `/answers/${id}`, ...more })
    : null;
  if (response !== null && response.status !== 404) return response;
  await response?.body?.cancel();
  throw new Refused(404, "This answer does not exist any more");
}

const PASSED =
  /^(content-(type|length|range)|accept-ranges|x-request-id|x-gateway-answer)$/;

/** An answer of the API without what is between the API and its callers. */
export function passOn({ body, status, headers }: Response): Response {
  const passedHeaders = [...headers].filter(([name]) => PASSED.test(name));
  return new Response(body, { status, headers: passedHeaders });
}
