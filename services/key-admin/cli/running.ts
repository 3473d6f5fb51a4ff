/**
 * `running …`: the requests that run now, as on the page "Running requests" of the
 * console.
 */
import type { z } from "zod";
import { RUNNING as LIST, STOPPED } from "../api/answers.ts";
import { ageText } from "../domain/models/model_views.ts";
import { namedAccount } from "./accounts.ts";
import { type Area, type Invocation, type Output } from "./command_line.ts";

const WATCH_MS = 2_000;
const MS_PER_SECOND = 1_000;
type RunningList = z.output<typeof LIST>;
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
  const { api, options, show, pause } = invocation;
  const { key, model } = options;
  const account = await namedAccount(invocation);
  const query = { account, key, model };
  const look = async () =>
    output(await api.ask(LIST, "GET /running", { query }));
  while (options.watch) {
    show(await look());
    await pause(WATCH_MS);
  }
  return await look();
}

function output(found: RunningList): Output {
  const { requests, edges, silent_edges: silent, more } = found;
  const notes = [
    edges === 0 && "No edge has answered: is one running?",
    silent > 0 && `Edges that have not answered in time: ${silent}`,
    more > 0 && `${more} more run: these are the oldest`,
    requests.length === 0 && edges > 0 && "Nothing runs now",
  ].filter((note) => note !== false);
  return {
    json: found,
    table: { rows: requests.map(rowOf), columns: COLUMNS },
    note: notes.join("\n"),
  };
}

const rowOf = (
  request: RunningList["requests"][number],
): Record<typeof COLUMNS[number], unknown> => ({
  request_id: request.request_id,
  state: request.state,
  for: ageText(request.seconds * MS_PER_SECOND),
  tokens: request.tokens,
  key_id: request.key_id,
  account: request.account,
  model: request.model,
  server: request.server ?? "-",
});

async function stop(
  { api, word, options: { reason } }: Invocation,
): Promise<Output> {
  const line = `POST /running/${encodeURIComponent(word)}/stop` as const;
  return { json: await api.ask(STOPPED, line, { body: { reason } }) };
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
