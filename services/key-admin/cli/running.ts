/**
 * `running …`: the requests that run now, as on the page "Running requests" of the
 * console.
 */
import { isoTime } from "../domain/keys/key_json.ts";
import { publicRequestId } from "@gateway/shared/process/ids";
import { ageText } from "../domain/models/model_views.ts";
import type {
  RunningList,
  RunningView,
} from "../domain/running/running_requests.ts";
import { stopEntry } from "../domain/running/stop_entry.ts";
import {
  type Area,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  findProject,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

const WATCH_MS = 2_000;
const MS_PER_SECOND = 1_000;
const REQUEST_ID = /^(?:req_)?([0-9a-f]{32})$/;
const UNREACHABLE = "NATS does not answer, so nobody knows what runs now";
const COLUMNS = [
  "request_id",
  "state",
  "for",
  "tokens",
  "key_id",
  "account",
  "model",
  "server",
] as const;

async function list(invocation: Invocation): Promise<Output> {
  const { options, show, pause } = invocation;
  const account = await accountOf(invocation);
  await using asked = await invocation.askRunning();
  const look = async () => output(invocation, await asked.list(account));
  while (options.watch) {
    show(await look());
    await pause(WATCH_MS);
  }
  return await look();
}

/** Returns the account that the options name; null for all accounts. */
async function accountOf(invocation: Invocation): Promise<string | null> {
  const { owner, project } = invocation.options;
  if (owner !== undefined && project !== undefined) {
    throw new UsageError("Give --owner or --project, not both");
  }
  if (owner !== undefined) return await findOwner(invocation, owner);
  if (project === undefined) return null;
  const { id } = await findProject(invocation, project);
  return id;
}

async function output(
  { options: { key, model }, people, now }: Invocation,
  found: RunningList | null,
): Promise<Output> {
  if (found === null) throw new CommandRefused(UNREACHABLE);
  const requests = found.requests.filter((each) =>
    (key ?? each.keyId) === each.keyId && (model ?? each.model) === each.model
  );
  const names = new Map<string, string>();
  for (const { account } of requests) {
    if (names.has(account)) continue;
    names.set(account, await people.name(account) ?? account);
  }
  const notes = [
    found.edges === 0 && "No edge has answered: is one running?",
    found.silentEdges > 0 &&
    `Edges that have not answered in time: ${found.silentEdges}`,
    found.more > 0 && `${found.more} more run: these are the oldest`,
    requests.length === 0 && found.edges > 0 && "Nothing runs now",
  ].filter((note) => note !== false);
  const nowMs = now();
  return {
    json: {
      requests: requests.map((each) => jsonOf(each, nowMs)),
      edges: found.edges,
      silent_edges: found.silentEdges,
      more: found.more,
      at: isoTime(nowMs),
    },
    table: {
      rows: requests.map((each) => rowOf(each, names)),
      columns: COLUMNS,
    },
    note: notes.join("\n"),
  };
}

const jsonOf = (request: RunningView, nowMs: number) => ({
  request_id: publicRequestId(request.requestId),
  account_id: request.account,
  key_id: request.keyId,
  kind: request.kind,
  model: request.model,
  state: request.state,
  since: isoTime(nowMs - request.ageMs),
  seconds: request.ageMs / MS_PER_SECOND,
  tokens: request.tokens,
  server: request.backend || null,
  worker: request.workerId,
});

const rowOf = (
  request: RunningView,
  names: ReadonlyMap<string, string>,
): Record<typeof COLUMNS[number], unknown> => ({
  request_id: publicRequestId(request.requestId),
  state: request.state,
  for: ageText(request.ageMs),
  tokens: request.tokens,
  key_id: request.keyId,
  account: names.get(request.account) ?? request.account,
  model: request.model,
  server: request.backend || "-",
});

async function stop(invocation: Invocation): Promise<Output> {
  const { word, keys, audit, options: { reason = "" } } = invocation;
  const [, requestId] = REQUEST_ID.exec(word) ?? [];
  if (requestId === undefined) {
    throw new UsageError(
      "Not the id of a request: these have 32 hexadecimal digits after req_",
    );
  }
  await using asked = await invocation.askRunning();
  const found = await asked.list(null);
  if (found === null) throw new CommandRefused(UNREACHABLE);
  const request = found.requests.find((each) => each.requestId === requestId);
  const result = request === undefined ? "ended" : await asked.stop(request);
  if (request === undefined || result === "ended") {
    throw new CommandRefused("This request does not run any more");
  }
  if (result === "unreachable") {
    throw new CommandRefused(
      `No edge has confirmed it. "keys disable ID --stop-running" stops all requests of a key`,
    );
  }
  const { account, keyId } = request;
  const entry = stopEntry(request, await keys.get(account, keyId), reason);
  await audit.add(account, { ...COMMAND_LINE, ...entry });
  return {
    json: {
      request_id: publicRequestId(requestId),
      account_id: account,
      key_id: keyId,
      stopped: true,
    },
  };
}

/** The commands on running requests. */
export const RUNNING: Area = {
  title: "See what runs now, and stop it.",
  commands: [
    {
      usage: "list",
      help: "show running requests, oldest first (default)",
      run: list,
      options: ["owner", "project", "key", "model", "watch"],
    },
    {
      usage: "stop <request>",
      help: "stop one; its caller gets an error",
      run: stop,
      options: ["reason"],
    },
  ],
  usual: "list",
  notes:
    "TOKENS: made so far, or characters, images or seconds. Videos that model servers make are not requests that run.",
};
