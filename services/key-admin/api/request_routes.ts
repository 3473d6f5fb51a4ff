/** Requests: those that run, and those that were refused, failed or were slow. */
import { publicRequestId } from "@gateway/shared/process/ids";
import { z } from "zod";
import { isoTime } from "../domain/keys/key_json.ts";
import { requestCsv } from "../domain/requests/request_csv.ts";
import { requestJson } from "../domain/requests/request_json.ts";
import {
  parseRequestQuery,
  TIME_FORMS,
} from "../domain/requests/request_query.ts";
import { runningJson } from "../domain/running/running_json.ts";
import { stopEntry } from "../domain/running/stop_entry.ts";
import { REQUESTS, RUNNING, STOPPED } from "./answers.ts";
import { accountId, NO_BODY, NOTHING, PLACE, reason } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
} from "./route.ts";
import { checkAccount } from "./shared_steps.ts";

const text = z.string().default("");
const SEARCH = z.strictObject({
  account: accountId.optional(),
  from: text.meta({ description: `From this time on: ${TIME_FORMS}` }),
  until: text.meta({ description: "Before this time" }),
  key: text,
  model: text,
  code: text.meta({ description: "The code of the error, or the reason" }),
  request: text.meta({ description: "The id of a request" }),
  outcome: text.meta({ description: "refused, failed, cut or slow" }),
});

/** What a search asks for. Throws on its first mistake. */
async function filterOf(
  deps: AdminDeps,
  { account, ...texts }: z.output<typeof SEARCH>,
) {
  if (account !== undefined) await checkAccount(deps, account);
  const query = parseRequestQuery(texts, deps.now());
  if (!("message" in query)) return { ...query, ownerId: account ?? null };
  const { field: param, message } = query;
  throw new AdminRefused("invalid_value", message, { param });
}

async function search(
  { deps, query }: AdminCall<z.output<typeof PAGE_OF_SEARCH>, unknown>,
): Promise<AdminAnswer> {
  const { after, rows, ...texts } = query;
  const filter = await filterOf(deps, texts);
  const page = await deps.requests.search({ ...filter, after, rows });
  return {
    json: {
      requests: page.rows.map(requestJson),
      next: page.next,
      missing_before: isoTime(page.missingBeforeMs),
      at: isoTime(deps.now()),
    },
  };
}
const PAGE_OF_SEARCH = SEARCH.extend(PLACE);

const NATS_SILENT = "NATS does not answer, so nobody knows what runs now";

async function running(
  { deps, query }: AdminCall<z.output<typeof RUNNING_QUERY>, unknown>,
): Promise<AdminAnswer> {
  const { account = null, key, model } = query;
  if (account !== null) await checkAccount(deps, account);
  await using runs = await deps.askRunning();
  const found = await runs.list(account);
  if (found === null) throw new AdminRefused("unavailable", NATS_SILENT);
  const requests = found.requests.filter((each) =>
    (key ?? each.keyId) === each.keyId && (model ?? each.model) === each.model
  );
  const nowMs = deps.now();
  const ids = [...new Set(requests.map(({ account }) => account))];
  const names = new Map<string, string>();
  for (const id of ids) names.set(id, await deps.people.name(id) || id);
  return {
    json: {
      requests: requests.map((each) => runningJson(each, { nowMs, names })),
      edges: found.edges,
      silent_edges: found.silentEdges,
      more: found.more,
      at: isoTime(nowMs),
    },
  };
}
const RUNNING_QUERY = z.strictObject({
  account: accountId.optional(),
  key: z.string().max(200).optional(),
  model: z.string().max(300).optional(),
});

const REQUEST_ID = /^(?:req_)?([0-9a-f]{32})$/;
const HAS_ENDED = "This request does not run any more";

async function stop(
  { deps, actor, id, body: { reason = "" } }: AdminCall<
    unknown,
    z.output<typeof WHY>
  >,
): Promise<AdminAnswer> {
  const [, requestId] = REQUEST_ID.exec(id) ?? [];
  if (requestId === undefined) {
    const message =
      "Not the id of a request: these have 32 hexadecimal digits after req_";
    throw new AdminRefused("invalid_value", message, { param: "id" });
  }
  await using runs = await deps.askRunning();
  const found = await runs.list(null);
  if (found === null) throw new AdminRefused("unavailable", NATS_SILENT);
  const request = found.requests.find((each) => each.requestId === requestId);
  const result = request === undefined ? "ended" : await runs.stop(request);
  if (request === undefined || result === "ended") {
    throw new AdminRefused("not_found", HAS_ENDED);
  }
  if (result === "unreachable") {
    const message =
      "No edge has confirmed it. Try again, or disable the key and stop all of its requests";
    throw new AdminRefused("unavailable", message);
  }
  const { account, keyId } = request;
  const key = await deps.keys.get(account, keyId);
  const entry = stopEntry(request, key, reason);
  await deps.audit.add(account, { ...actor, ...entry });
  return {
    json: {
      request_id: publicRequestId(requestId),
      account_id: account,
      key_id: keyId,
      stopped: true,
    },
  };
}
const WHY = z.strictObject({ reason: reason.optional() });

/** Routes of requests. */
export const REQUEST_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/requests",
    scope: "usage",
    summary:
      "Find requests that were refused, failed or were slow, newest first",
    query: PAGE_OF_SEARCH,
    body: NO_BODY,
    answers: REQUESTS,
    run: search,
  }),
  adminRoute({
    method: "GET",
    path: "/requests.csv",
    scope: "usage",
    summary: "Export all that such a search finds as CSV",
    query: SEARCH,
    body: NO_BODY,
    answers: "csv",
    run: async ({ deps, query }) => {
      const filter = await filterOf(deps, query);
      return { csv: requestCsv(deps.requests, filter) };
    },
  }),
  adminRoute({
    method: "GET",
    path: "/running",
    scope: "keys",
    summary: "List the requests that run now, oldest first",
    query: RUNNING_QUERY,
    body: NO_BODY,
    answers: RUNNING,
    run: running,
  }),
  adminRoute({
    method: "POST",
    path: "/running/:id/stop",
    scope: "keys",
    summary: "Stop a running request; its caller gets an error",
    query: NOTHING,
    body: WHY,
    answers: STOPPED,
    run: stop,
  }),
];
