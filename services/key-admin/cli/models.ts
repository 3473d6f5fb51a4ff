/**
 * `models …`: the state of the model servers, as the page "Models" of the console shows
 * it.
 */
import { overrideSchema } from "@gateway/shared/backends/overrides";
import type { z } from "zod";
import { MODELS as LIST, OVERRIDE } from "../api/answers.ts";
import {
  shortRate,
  shortTime,
  waitingText,
} from "../domain/models/model_views.ts";
import { describe } from "../domain/models/override_store.ts";
import {
  type Area,
  CommandRefused,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

/** As often as workers send reports. */
const WATCH_MS = 2_000;
const ERROR_CHARS_MAX = 60;

type ModelList = z.output<typeof LIST>;
type Server = ModelList["models"][number]["servers"][number];

async function list(invocation: Invocation): Promise<Output> {
  const { api, options, show, pause } = invocation;
  const look = async () => output(await api.ask(LIST, "GET /models"));
  while (options.watch) {
    show(await look());
    await pause(WATCH_MS);
  }
  return await look();
}

function output(found: ModelList): Output {
  const { workers, list_mistakes: mistakes, models, overrides } = found;
  const rows = models.flatMap(({ id, scope, servers }) =>
    servers.map((server) => ({
      model: id,
      scope: scope ?? "-",
      ...rowOf(server),
    }))
  );
  return {
    json: { workers, list_mistakes: mistakes, models, overrides },
    table: { rows, columns: COLUMNS },
    note: [
      workers === 0
        ? "No worker has told anything: is one running?"
        : `Figures of the last hour, from ${workers} worker${
          workers === 1 ? "" : "s"
        }.`,
      ...models.filter(({ waiting }) => waiting.requests > 0).map(
        ({ id, waiting: { requests, oldest_ms: oldestMs } }) =>
          `${id}: ${waitingText({ requests, oldestMs })}`,
      ),
      ...mistakes.map((mistake) =>
        `The list of models has a mistake, so workers use an older one: ${mistake}`
      ),
      ...overrides.map((each) =>
        `Changed: ${
          describe(overrideSchema.parse(each))
        }, by ${each.by} at ${each.at}${
          each.reason === "" ? "" : `: ${each.reason}`
        }`
      ),
    ].join("\n"),
  };
}

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

function rowOf(server: Server) {
  const { note } = server;
  const word = wordOf(server);
  const both = (
    found: Server["first_token_ms"],
    textOf: (value: number) => string,
  ) => found === null ? "-" : `${textOf(found.p50)} / ${textOf(found.p95)}`;
  const { text = "-" } = server.last_error ?? {};
  return {
    server: server.name,
    state: note === "" ? word : `${word} (${note})`,
    in_flight: server.in_flight,
    requests: server.requests,
    failures: server.failures,
    first_token: both(server.first_token_ms, shortTime),
    tokens_per_second: both(server.tokens_per_second, shortRate),
    last_error: text.length > ERROR_CHARS_MAX
      ? `${text.slice(0, ERROR_CHARS_MAX)}…`.toWellFormed()
      : text,
  };
}

/** `Not reported`, `Half-open`: a state for people. */
function wordOf({ state }: Server): string {
  const text = state.replace("half_open", "half-open").replaceAll("_", " ");
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

const UNTOLD =
  "Saved, but NATS did not answer: edges and workers hear of it when key-admin repeats it";

/** A server of a model, by its name and, if several models have one, the model's. */
async function findServer(
  { api, word, options: { model } }: Invocation,
): Promise<{ model: string; backend: string }> {
  const { models } = await api.ask(LIST, "GET /models");
  const found = models.filter(({ id, servers }) =>
    (model ?? id) === id && servers.some(({ name }) => name === word)
  );
  const [only] = found;
  if (only === undefined) {
    throw new CommandRefused(
      'There is no such server: "models" shows all of them',
    );
  }
  if (found.length > 1) {
    const ids = found.map(({ id }) => id).join(", ");
    throw new CommandRefused(
      `Several models have a server of this name: choose one with --model (${ids})`,
    );
  }
  return { model: only.id, backend: word };
}

type What = ModelList["overrides"][number]["what"];

const ENDS: Readonly<Record<What, string>> = {
  disable: "disabled",
  drain: "drained",
  weight: "weight",
};

/** The path of an override. */
function pathOf(
  what: What,
  { model, backend }: { model: string; backend: string },
): `/models/${string}` {
  const ids = [model, backend].map(encodeURIComponent);
  return what === "disable"
    ? `/models/${ids[0]}/${ENDS[what]}`
    : `/models/${ids.join("/servers/")}/${ENDS[what]}`;
}

/** Prints what was changed, and warns of what follows. */
function printed(
  { warn }: Invocation,
  override: z.output<typeof OVERRIDE>,
): Output {
  const { what, model, backend = "", undone } = override;
  if (override.last_server) {
    warn(
      `This was the last server of ${model} that was in use: requests get 503 now`,
    );
  }
  if (!override.told) warn(UNTOLD);
  return { json: { what, model, server: backend, undone } };
}

const drain = async (invocation: Invocation): Promise<Output> => {
  const { api, options: { reason } } = invocation;
  const path = pathOf("drain", await findServer(invocation));
  const body = { reason };
  return printed(invocation, await api.ask(OVERRIDE, `PUT ${path}`, { body }));
};

const weigh = async (invocation: Invocation): Promise<Output> => {
  const { api, options: { to: weight, reason } } = invocation;
  if (weight === undefined) throw new UsageError("--to: missing");
  const path = pathOf("weight", await findServer(invocation));
  const body = { weight, reason };
  return printed(invocation, await api.ask(OVERRIDE, `PUT ${path}`, { body }));
};

const disable = async (invocation: Invocation): Promise<Output> => {
  const { api, word: model, options: { reason } } = invocation;
  const { models } = await api.ask(LIST, "GET /models");
  if (models.every(({ id }) => id !== model)) {
    throw new CommandRefused('There is no such model: "models" shows all');
  }
  const path = pathOf("disable", { model, backend: "" });
  const body = { reason };
  return printed(invocation, await api.ask(OVERRIDE, `PUT ${path}`, { body }));
};

/**
 * Makes a command that undoes a change, even if its target is no longer in the list.
 */
const undo = (what: What) => async (invocation: Invocation) => {
  const { api, word, options } = invocation;
  const { overrides } = await api.ask(LIST, "GET /models");
  const name = what === "disable" ? "model" : "backend";
  const found = overrides.filter((each) =>
    each.what === what && each[name] === word &&
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
  const { model, backend = "" } = only;
  const path = pathOf(what, { model, backend });
  return printed(invocation, await api.ask(OVERRIDE, `DELETE ${path}`));
};

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
