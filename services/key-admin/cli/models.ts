/**
 * `models …`: the state of the model servers, as the page "Models" of the console shows
 * it.
 */
import { isoTime } from "../domain/keys/key_json.ts";
import { scopeOf } from "@gateway/shared/models/kinds";
import {
  type ModelView,
  modelViews,
  othersInUse,
  type ServerView,
  shortRate,
  shortTime,
  stateOf,
} from "../domain/models/model_views.ts";
import type {
  Override,
  OverrideTarget,
} from "@gateway/shared/backends/overrides";
import {
  describe,
  type StoredOverride,
} from "../domain/models/override_store.ts";
import {
  type Area,
  COMMAND_LINE,
  CommandRefused,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

/** As often as workers send reports. */
const WATCH_MS = 2_000;
const ERROR_CHARS_MAX = 60;

async function list(invocation: Invocation): Promise<Output> {
  const { options, show, pause, overrides } = invocation;
  await using workers = await invocation.askWorkers();
  const look = async () => output(invocation, workers, await overrides.list());
  while (options.watch) {
    show(await look());
    await pause(WATCH_MS);
  }
  return await look();
}

/** The part of the workers that {@link output} reads. */
interface WorkerReports {
  readonly backends: { read(): Parameters<typeof modelViews>[1] };
  readonly follower: { readonly workers: number };
  /** Why workers have not taken the present list of models. */
  mistakes(): readonly string[];
}

function output(
  { catalog, now }: Invocation,
  reports: WorkerReports,
  overrides: readonly StoredOverride[],
): Output {
  const models = modelViews(catalog, reports.backends.read());
  const rows = models.flatMap((model) =>
    model.servers.map((server) => ({
      model: model.id,
      scope: scopeFor(model) ?? "-",
      ...rowOf(server),
    }))
  );
  const { workers } = reports.follower;
  const mistakes = reports.mistakes();
  return {
    json: {
      workers,
      list_mistakes: mistakes,
      models: models.map((model) => jsonOf(model, now())),
      overrides: overrides.map(({ atMs, ...each }) => ({
        ...each,
        at: isoTime(atMs),
      })),
    },
    table: { rows, columns: COLUMNS },
    note: [
      workers === 0
        ? "No worker has told anything: is one running?"
        : `Figures of the last hour, from ${workers} worker${
          workers === 1 ? "" : "s"
        }.`,
      ...mistakes.map((mistake) =>
        `The list of models has a mistake, so workers use an older one: ${mistake}`
      ),
      ...overrides.map((each) =>
        `Changed: ${describe(each)}, by ${each.by} at ${isoTime(each.atMs)}${
          each.reason === "" ? "" : `: ${each.reason}`
        }`
      ),
    ].join("\n"),
  };
}

/** The scope with which keys may use a model; null: only workers have it. */
const scopeFor = ({ kind }: ModelView) => kind && scopeOf(kind);

const COLUMNS = [
  "model",
  "scope",
  "server",
  "state",
  "in_flight",
  "requests",
  "failures",
  "first_token",
  "tokens_per_second",
  "last_error",
] as const;

function rowOf(server: ServerView) {
  const { word, note } = stateOf(server);
  const both = (
    found: ServerView["firstTokenMs"],
    textOf: (value: number) => string,
  ) => found === null ? "-" : `${textOf(found.p50)} / ${textOf(found.p95)}`;
  const { text = "-" } = server.error ?? {};
  return {
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

const jsonOf = (model: ModelView, nowMs: number) => ({
  id: model.id,
  kind: model.kind,
  scope: scopeFor(model),
  servers: model.servers.map((server) => ({
    name: server.backend,
    address: server.address,
    preference: server.preference,
    weight: server.weight,
    state: stateOf(server).word.toLowerCase().replaceAll(/[ -]/g, "_"),
    note: stateOf(server).note,
    probe: server.probe && {
      failed: server.probe.isFailed,
      at: isoTime(nowMs - server.probe.ageMs),
    },
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

const OPERATOR = { ...COMMAND_LINE, ownerId: null };
const UNTOLD =
  "Saved, but NATS did not answer: edges and workers hear of it when key-admin repeats it";

/** A server of a model, by its name and, if several models have one, the model's. */
function findServer(
  { word, options: { model } }: Invocation,
  views: readonly ModelView[],
): ServerView & { view: ModelView } {
  const found = views.flatMap((view) =>
    view.servers.filter(({ backend }) =>
      backend === word && (model ?? view.id) === view.id
    ).map((server) => ({ ...server, view }))
  );
  const [server] = found;
  if (server === undefined) {
    throw new CommandRefused(
      'There is no such server: "models" shows all of them',
    );
  }
  if (found.length > 1) {
    const models = found.map(({ view }) => view.id).join(", ");
    throw new CommandRefused(
      `Several models have a server of this name: choose one with --model (${models})`,
    );
  }
  return server;
}

/** Makes a command that changes a model or a server, or undoes such a change. */
const changing = (
  make: (
    invocation: Invocation,
    views: readonly ModelView[],
    overrides: readonly StoredOverride[],
  ) => Override | { undo: OverrideTarget },
) =>
async (invocation: Invocation): Promise<Output> => {
  const { catalog, overrides, warn, options: { reason = "" } } = invocation;
  await using workers = await invocation.askWorkers();
  const views = modelViews(catalog, workers.backends.read());
  const change = make(invocation, views, await overrides.list());
  const isUndo = "undo" in change;
  if (!isUndo) await overrides.set(change, OPERATOR, reason);
  else if (!await overrides.remove(change.undo, OPERATOR)) {
    throw new CommandRefused("There is no such change to undo");
  }
  if (!await workers.tellOverrides()) warn(UNTOLD);
  const { what, model, backend = "" } = isUndo
    ? change.undo
    : { backend: "", ...change };
  return { json: { what, model, server: backend, undone: isUndo } };
};

const drain = changing((invocation, views, overrides) => {
  const { model, backend, view } = findServer(invocation, views);
  if (othersInUse(view, backend, overrides).length === 0) {
    invocation.warn(
      `This was the last server of ${model} that was in use: requests get 503 now`,
    );
  }
  return { what: "drain", model, backend };
});

const weigh = changing((invocation, views) => {
  const { to: weight } = invocation.options;
  if (weight === undefined) throw new UsageError("--to: missing");
  const { model, backend } = findServer(invocation, views);
  return { what: "weight", model, backend, weight };
});

const disable = changing(({ word: model }, views) => {
  if (views.some(({ id }) => id === model)) return { what: "disable", model };
  throw new CommandRefused('There is no such model: "models" shows all');
});

/**
 * Makes a command that undoes a change, even if its target is no longer in the list.
 */
const undo = (what: OverrideTarget["what"]) =>
  changing(({ word, options }, _, overrides) => {
    if (what === "disable") return { undo: { what, model: word } };
    const found = overrides.filter((each) =>
      each.what === what && each.backend === word &&
      (options.model ?? each.model) === each.model
    );
    const [only] = found;
    if (only === undefined || found.length > 1) {
      throw new CommandRefused(
        only === undefined
          ? "There is no such change to undo"
          : "Several models have this change: choose one with --model",
      );
    }
    return { undo: only };
  });

/** The commands on models. */
export const MODELS: Area = {
  title: "See how the model servers do, and take them out of use.",
  commands: [
    {
      usage: "list",
      help: "show all models with their servers (default)",
      run: list,
      options: ["watch"],
    },
    {
      usage: "drain <server>",
      help: "send a server nothing new",
      run: drain,
      options: ["model", "reason"],
    },
    {
      usage: "undrain <server>",
      help: "take a server back",
      run: undo("drain"),
      options: ["model"],
    },
    {
      usage: "weight <server>",
      help: "change its share of the requests",
      run: weigh,
      options: ["model", "to", "reason"],
    },
    {
      usage: "unweight <server>",
      help: "undo its weight",
      run: undo("weight"),
      options: ["model"],
    },
    {
      usage: "disable <model>",
      help: "refuse requests for a model",
      run: disable,
      options: ["reason"],
    },
    {
      usage: "enable <model>",
      help: "take a model back",
      run: undo("disable"),
    },
  ],
  usual: "list",
  notes:
    "FIRST TOKEN and TOKENS PER SECOND are the median and the 95th percentile.",
};
