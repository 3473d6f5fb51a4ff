/** `models …`: how the model servers do, as the page "Models" of the console shows. */
import {
  type ModelView,
  modelViews,
  type ServerView,
  shortRate,
  shortTime,
  stateOf,
} from "../domain/models/model_views.ts";
import type { Area, Invocation, Output } from "./command_line.ts";
import { isoTime } from "./command_line.ts";

/** As often as workers tell anything. */
const WATCH_MS = 2_000;
const ERROR_CHARS_MAX = 60;

async function list(invocation: Invocation): Promise<Output> {
  const { options, show, pause } = invocation;
  await using workers = await invocation.askWorkers();
  const look = () => output(invocation, workers);
  while (options.watch) {
    show(look());
    await pause(WATCH_MS);
  }
  return look();
}

/** What {@link output} reads of the workers. */
interface Seen {
  readonly backends: { read(): Parameters<typeof modelViews>[1] };
  readonly follower: { readonly workers: number };
}

function output({ catalog, now }: Invocation, seen: Seen): Output {
  const models = modelViews(catalog, seen.backends.read());
  const rows = models.flatMap((model) => model.servers.map(rowOf));
  const { workers } = seen.follower;
  return {
    json: { workers, models: models.map((model) => jsonOf(model, now())) },
    table: { rows, columns: COLUMNS },
    note: workers === 0
      ? "No worker has told anything: is one running?"
      : `Figures of the last hour, from ${workers} worker${
        workers === 1 ? "" : "s"
      }.`,
  };
}

const COLUMNS = [
  "model",
  "server",
  "state",
  "in_flight",
  "requests",
  "failures",
  "first_token",
  "tokens_per_second",
  "last_error",
] as const;

function rowOf(server: ServerView): Record<typeof COLUMNS[number], unknown> {
  const { word, note } = stateOf(server);
  const both = (
    found: ServerView["firstTokenMs"],
    textOf: (value: number) => string,
  ) => found === null ? "-" : `${textOf(found.p50)} / ${textOf(found.p95)}`;
  const { text = "-" } = server.error ?? {};
  return {
    model: server.model,
    server: server.backend,
    state: note === "" ? word : `${word} (${note})`,
    in_flight: server.inFlight,
    requests: server.requests,
    failures: server.failures,
    first_token: both(server.firstTokenMs, shortTime),
    tokens_per_second: both(server.tokensPerSecond, shortRate),
    last_error: text.length > ERROR_CHARS_MAX
      ? `${text.slice(0, ERROR_CHARS_MAX)}…`.toWellFormed()
      : text,
  };
}

const jsonOf = ({ id, kind, servers }: ModelView, nowMs: number) => ({
  id,
  kind,
  servers: servers.map((server) => ({
    name: server.backend,
    address: server.address,
    preference: server.preference,
    weight: server.weight,
    state: stateOf(server).word.toLowerCase().replaceAll(/[ -]/g, "_"),
    note: stateOf(server).note,
    workers: server.workers,
    in_flight: server.inFlight,
    requests: server.requests,
    failures: server.failures,
    first_token_ms: server.firstTokenMs,
    tokens_per_second: server.tokensPerSecond,
    last_error: server.error &&
      { text: server.error.text, at: isoTime(nowMs - server.error.ageMs) },
  })),
});

/** The commands on models. */
export const MODELS: Area = {
  title: "See how the model servers do.",
  commands: [
    ["list", "show all models with their servers (default)", list, ["watch"]],
  ],
  usual: "list",
  notes:
    "FIRST TOKEN and TOKENS PER SECOND are the median and the 95th percentile.",
};
