/**
 * `deno task keys …`, `admin-keys …`, `owners …`, `projects …`, `models …`,
 * `requests …`, `running …` and `ledger …`: commands over the stores of the console.
 */
import { setTimeout as delay } from "node:timers/promises";
import { BusUnavailableError } from "@gateway/shared/bus/link";
import { wallNow } from "@gateway/shared/process/clock";
import * as env from "@gateway/shared/process/env";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import { z } from "zod";
import {
  CommandRefused,
  EXIT_BY_CODE,
  type Output,
  outputText,
  parseCommand,
  UsageError,
} from "./cli/command_line.ts";
import type { ConnectedWorkers } from "./domain/models/connected_workers.ts";
import { ADMIN_KEYS } from "./cli/admin_keys.ts";
import { KEYS } from "./cli/keys.ts";
import { LEDGER } from "./cli/ledger.ts";
import { MODELS } from "./cli/models.ts";
import { OWNERS } from "./cli/owners.ts";
import { PROJECTS } from "./cli/projects.ts";
import { REQUESTS } from "./cli/requests.ts";
import { RUNNING } from "./cli/running.ts";
import { NamedModels } from "@gateway/shared/models/aliases";
import { readSettingsFile } from "@gateway/shared/reload/files";
import { idsOf } from "@gateway/shared/models/catalog_variables";
import { AdminRefused } from "./api/route.ts";
import { LocalApi } from "./cli/local_api.ts";
import { ApiUnreachable, RemoteApi } from "./cli/remote_api.ts";
import { adminAccessFrom, configFrom, type ConsoleConfig } from "./config.ts";
import { AdminKeyRefused } from "./domain/admin_keys/admin_key_store.ts";
import { KeyRefused } from "./domain/keys/key_refused.ts";
import { OverrideRefused } from "./domain/models/override_store.ts";
import { ProjectRefused } from "./domain/projects/project_refused.ts";
import { OperatorRefused } from "./domain/operators/operators.ts";
import { createStopSender } from "./domain/keys/notice.ts";
import {
  followWorkers,
  workersReported,
} from "./domain/models/worker_follower.ts";
import { NotDurable } from "./domain/store/durability.ts";
import { BadCursor, connectRedis } from "./domain/store/redis.ts";
import { askRunning } from "./domain/running/ask_running.ts";
import { tellOverrides } from "./domain/models/override_teller.ts";
import { createStores, type Stores } from "./domain/stores.ts";

const CONNECT_MS = 2_000;

const UP_FILE = ".run/up.json";
const upFile = z.object({
  redis_url: z.string(),
  nats_url: z.string(),
  console_url: z.string(),
  models: z.array(z.string()).optional(),
  /** The models with aliases. */
  aliases: z.array(
    z.object({ id: z.string(), aliases: z.array(z.string()) }),
  ).default([]),
  /** Where the list of models is; null: only in variables. */
  models_file: z.string().nullable().default(null),
  simulator_url: z.string().nullable().default(null),
});

/** Runs a command with these variables, and returns what it prints. */
export async function run(
  args: string[],
  variables: env.Env,
): Promise<string> {
  const areas = {
    keys: KEYS,
    "admin-keys": ADMIN_KEYS,
    owners: OWNERS,
    projects: PROJECTS,
    models: MODELS,
    requests: REQUESTS,
    running: RUNNING,
    ledger: LEDGER,
  };
  const command = parseCommand(areas, args);
  if (typeof command === "string") return command;
  const textOf = (output: Output) =>
    command.isJson ? JSON.stringify(output.json) : outputText(output);
  const deps = {
    now: wallNow,
    warn: printError,
    show: (output: Output) => print(`${CLEAR}${textOf(output)}`),
    pause: (ms: number) => delay(ms),
  };
  const access = adminAccessFrom(variables, readSettingsFile);
  if (access !== null) {
    const remote = { api: new RemoteApi(access), local: null };
    return textOf(await command.run({ ...deps, ...remote, modelNames: null }));
  }
  await using local = await connectLocal(variables);
  return textOf(await command.run({ ...deps, ...local }));
}

/** Redis and the bus of the cluster of these variables, and the admin API over them. */
async function connectLocal(variables: env.Env) {
  const cluster = findCluster(variables);
  const { redis: address, defaultLimits, bus, publicUrl, port } = cluster;
  const options = { address, log: silentLog, waitMs: CONNECT_MS };
  const redis = await connectRedis(options);
  const writer = redis;
  const links = { redis, writer, randomBytes, now: wallNow };
  const stores = createStores({ ...links, defaultLimits });
  const modelNames = {
    ids: () => cluster.models,
    find: (name: string) => cluster.modelNames?.find(name),
  };
  const local = {
    ...stores,
    budgetZone: cluster.budgetZone,
    publicUrl: publicUrl ?? new URL(`http://127.0.0.1:${port}`),
    readFile: (path: string) => Deno.readTextFile(path),
  };
  const kept = new AsyncDisposableStack();
  kept.defer(() => redis.close());
  const api = new LocalApi({
    ...local,
    modelNames,
    catalog: cluster.catalog,
    sendStop: createStopSender({ access: bus, writer, log: silentLog }),
    askWorkers: once(kept, () => askWorkers(cluster, stores)),
    askRunning: once(kept, () => askRunning(cluster)),
  });
  return {
    api,
    local,
    modelNames,
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

/** Opens something when it is asked for first, and closes it with the rest. */
function once<T extends AsyncDisposable>(
  kept: AsyncDisposableStack,
  open: () => Promise<T>,
): () => Promise<T> {
  let opened: Promise<T> | undefined;
  return async () => {
    opened ??= open().then((value) => kept.use(value));
    const value = await opened;
    return { ...value, [Symbol.asyncDispose]: () => Promise.resolve() };
  };
}

/** Connects to the bus and collects the reports of workers, as the console does. */
async function askWorkers(
  { bus: access, catalog }: Pick<ConsoleConfig, "bus" | "catalog">,
  { overrides }: Pick<Stores, "overrides">,
): Promise<ConnectedWorkers> {
  const workers = followWorkers({ access, catalog, log: silentLog });
  try {
    await workersReported(workers);
  } catch (error) {
    await workers.stop();
    throw error;
  }
  return {
    ...workers,
    tellOverrides: () => tellOverrides({ bus: workers.bus, overrides }),
    [Symbol.asyncDispose]: () => workers.stop(),
  };
}

/**
 * The configuration of the cluster: the service's variables, or the file that `deno
 * task up` wrote.
 */
function findCluster(environment: env.Env) {
  if (
    environment.REDIS_URL || environment.REDIS_URL_FILE ||
    environment.REDIS_SENTINELS
  ) {
    const config = configFrom(environment, Deno.readTextFileSync);
    const { catalog } = config;
    return {
      ...config,
      models: catalog && idsOf(catalog),
      modelNames: catalog,
    };
  }
  const { redis_url, nats_url, console_url, models, aliases, ...lists } =
    readUpFile();
  const found = { REDIS_URL: redis_url, NATS_URL: nats_url };
  const variables = { PUBLIC_URL: console_url, ...environment, ...found };
  const config = configWith(variables, lists);
  return { ...config, models, modelNames: new NamedModels(aliases) };
}

/** The configuration with the list of models that the launcher has been given. */
function configWith(
  variables: env.Env,
  { models_file, simulator_url }: Pick<
    z.output<typeof upFile>,
    "models_file" | "simulator_url"
  >,
) {
  const MODEL_SIMULATOR_URL = simulator_url ?? "";
  const all = { ...variables, MODEL_SIMULATOR_URL };
  const read = (MODELS_FILE: string) =>
    configFrom({ ...all, MODELS_FILE }, Deno.readTextFileSync);
  try {
    return read(models_file ?? "");
  } catch (error) {
    if (models_file === null || !(error instanceof env.ConfigError)) {
      throw error;
    }
    // The cluster goes on with the list that it read before there was a mistake in it.
    return read("");
  }
}

function readUpFile() {
  try {
    return upFile.parse(JSON.parse(Deno.readTextFileSync(UP_FILE)));
  } catch (cause) {
    throw new CommandRefused(
      `No cluster is running here: start one with "npx -y deno task up", or set REDIS_URL`,
      { cause },
    );
  }
}

/** The exit codes of expected errors; see `EXIT_CODES_HELP`. */
const EXIT_CODES = [
  [CommandRefused, 1],
  [KeyRefused, 1],
  [AdminKeyRefused, 1],
  [OperatorRefused, 1],
  [ProjectRefused, 1],
  [OverrideRefused, 1],
  [UsageError, 2],
  [BadCursor, 2],
  [NotDurable, 69],
  [ApiUnreachable, 69],
  [BusUnavailableError, 69],
  [env.ConfigError, env.EXIT_CONFIG],
] as const;

const ACL_HINT =
  "Use the user key-admin of deploy/redis/users.acl, in its newest version";
const REDIS_HINT =
  `Is "deno task up" still running in this folder? If not, check REDIS_…: host, port, user and password`;

/** The exit code and the text for stderr. Rethrows an unexpected error. */
function describeFailure(error: unknown): [code: number, text: string] {
  const text = env.errorMessage(error);
  if (isDenied(error)) {
    return [77, `The Redis user lacks a permission: ${text}\n${ACL_HINT}`];
  }
  if (error instanceof RedisUnavailableError) {
    const why = error.cause instanceof Error ? `: ${error.cause.message}` : "";
    return [69, `${text}${why}\n${REDIS_HINT}`];
  }
  if (error instanceof AdminRefused) {
    return [EXIT_BY_CODE.get(error.code) ?? 1, text];
  }
  const [, code] = EXIT_CODES.find(([kind]) => error instanceof kind) ?? [];
  if (code === undefined) throw error;
  return [code, text];
}

/**
 * Runs a command with these variables: the exit code and the text, which is for stdout
 * if the code is 0 and for stderr otherwise. Rejects with an unexpected error.
 */
export async function outcomeOf(
  args: string[],
  variables: env.Env,
): Promise<{ code: number; text: string }> {
  try {
    return { code: 0, text: await run(args, variables) };
  } catch (error) {
    const [code, text] = describeFailure(error);
    return { code, text };
  }
}

const lineOf = (text: string) => new TextEncoder().encode(`${text}\n`);

function print(text: string): void {
  Deno.stdout.writeSync(lineOf(text));
}

function printError(text: string): void {
  Deno.stderr.writeSync(lineOf(text));
}

/** On a terminal, `--watch` replaces what it has shown before. */
const CLEAR = Deno.stdout.isTerminal() ? "\x1b[H\x1b[2J" : "";

if (import.meta.main) {
  const { code, text } = await outcomeOf(Deno.args, Deno.env.toObject());
  Deno.exitCode = code;
  if (code === 0) await Deno.stdout.write(lineOf(text));
  else printError(text);
}
