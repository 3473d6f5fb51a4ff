/**
 * `gateway check`: whether the models file and the environment are right, before they
 * count, and whether the model servers answer.
 */
import type {
  BackendConfig,
  ModelCatalog,
} from "@gateway/shared/models/catalog";
import * as catalogVariables from "@gateway/shared/models/catalog_variables";
import { kindIn, type ServerConfig } from "@gateway/shared/models/servers";
import type { ModelKind } from "@gateway/shared/models/kinds";
import {
  ConfigError,
  type Env,
  EXIT_CONFIG,
  parseEnv,
} from "@gateway/shared/process/env";
import {
  COMMON_VARIABLES,
  NATS_VARIABLES,
  REDIS_VARIABLES,
} from "@gateway/shared/process/service_variables";
import { backendKeys } from "@gateway/shared/worker/models/backend_keys";
import {
  MODEL_KEYS_VARIABLES,
  MODEL_PROXY_VARIABLES,
  proxiesOf,
  UPSTREAM_KEY_VARIABLES,
} from "@gateway/shared/worker/config";
import {
  askServer,
  probeServer,
  type ServerAccess,
  type ServerProbe,
} from "./server_probe.ts";

/** The exit codes of the command. 69 is from sysexits.h. */
export const EXIT = { right: 0, unanswered: 69, wrong: EXIT_CONFIG } as const;

/** What the command was asked, and where it looks. */
export interface CheckOptions {
  env: Env;
  readFile: (path: string) => string;
  /** Whether the servers are asked. */
  asks: boolean;
  /** Whether this process has the keys of model servers, as workers have. */
  hasKeys: boolean;
  say: (line: string) => void;
}

const { UPSTREAM_KEY_ENV, CATALOG_VARIABLES } = catalogVariables;
/** What services share, but for the models. */
const OTHER_VARIABLES = {
  ...COMMON_VARIABLES,
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
};
const MODEL_VARIABLES = {
  ...CATALOG_VARIABLES,
  ...MODEL_KEYS_VARIABLES,
  ...MODEL_PROXY_VARIABLES,
  ...UPSTREAM_KEY_VARIABLES,
};

/** Says what is wrong or what was found. Returns the exit code. */
export async function check(options: CheckOptions): Promise<number> {
  const { env, readFile, say } = options;
  const faults: ConfigError[] = [];
  const attempt = <Result>(read: () => Result): Result | null => {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      faults.push(error);
      return null;
    }
  };
  attempt(() => parseEnv(OTHER_VARIABLES, env, readFile));
  const values = attempt(() => parseEnv(MODEL_VARIABLES, env, readFile));
  const hasUpstreamKey = values?.[UPSTREAM_KEY_ENV] !== undefined;
  const catalog = values &&
    attempt(() => catalogVariables.catalogOf(values, { hasUpstreamKey }));
  const directory = values?.MODEL_KEYS_DIR;
  const keys = catalog && options.hasKeys
    ? attempt(() => backendKeys(catalog.file, { env, readFile, directory }))
    : null;
  if (values === null || catalog === null || faults.length > 0) {
    for (const { message } of faults) say(message);
    return EXIT.wrong;
  }
  say(`The list of models and the environment are right: ${sizeOf(catalog)}`);
  sayUnpriced(catalog, say);
  if (!options.asks) return EXIT.right;
  return await askAll(catalog, {
    keyOf: (name) => keys?.get(name),
    proxies: proxiesOf(values),
    say,
  });
}

const countText = (count: number, what: string): string =>
  `${count} ${what}${count === 1 ? "" : "s"}`;

function sizeOf({ size, servers }: ModelCatalog): string {
  const models = countText(size, "model");
  if (servers.length === 0) return models;
  return `${models}, and those that ${
    countText(servers.length, "server")
  } will list`;
}

/** Where some models have prices, says which have none. */
function sayUnpriced(catalog: ModelCatalog, say: CheckOptions["say"]): void {
  if (catalog.prices.id === null) return;
  const unpriced = [...catalog.values()]
    .filter(({ prices }) => prices === undefined)
    .map(({ id }) => id);
  const { currency, id } = catalog.prices;
  say(`  prices in ${currency}: table ${id}`);
  if (unpriced.length > 0) say(`  without a price: ${unpriced.join(", ")}`);
}

/** Who is asked for what. */
interface Question {
  /** The model as callers know it, or the server whose models are found. */
  about: string;
  config: BackendConfig;
  kind: ModelKind;
}

/**
 * Servers are asked at the same time, each for one model after the other. Returns the
 * exit code.
 */
async function askAll(
  catalog: ModelCatalog,
  { say, ...access }: ServerAccess & Pick<CheckOptions, "say">,
): Promise<number> {
  const listed = await Promise.all(
    catalog.servers.map((server) => askForList(server, { say, ...access })),
  );
  const models = modelsIn(catalog, listed.map(({ names }) => names ?? []));
  const byServer = Map.groupBy(models, ({ config }) => config.base_url);
  const answers = await Promise.all(
    [...byServer.values()].map(async (questions) => {
      const found: boolean[] = [];
      for (const { about, config, kind } of questions) {
        const answer = await askServer(config, kind, access);
        say(`  ${about} -> ${answer.servers}`);
        found.push(answer.isAnswering);
      }
      return found.every(Boolean);
    }),
  );
  const all = [...answers, ...listed.map(({ isAnswering }) => isAnswering)];
  return all.every(Boolean) ? EXIT.right : EXIT.unanswered;
}

/** Asks a server which models it has. */
async function askForList(
  { name, template }: ServerConfig,
  { say, ...access }: ServerAccess & Pick<CheckOptions, "say">,
): Promise<ServerProbe> {
  const probe = await probeServer({ ...template, model: name }, access);
  const { servers, names } = probe;
  const listed = names === null
    ? ""
    : `, lists ${countText(names.length, "model")}`;
  say(`  ${name} -> ${servers}${listed}`);
  return probe;
}

/** The same question with every key of a pool, which it names. */
function withEachKey(question: Question): Question[] {
  const { about, config } = question;
  if (config.keys.length < 2) return [question];
  return config.keys.map(({ variable }) => ({
    ...question,
    about: `${about} (${variable})`,
    config: { ...config, api_key_env: variable },
  }));
}

/**
 * Each model of each server once, and the first chat model of each list, which may
 * stand for a model of the file.
 */
function modelsIn(
  catalog: ModelCatalog,
  lists: readonly (readonly string[])[],
): Question[] {
  const firsts = new Map(
    catalog.servers.map((server, index) => [
      server.name,
      lists[index]?.find((name) =>
        kindIn(server, server.prefix + name) === "chat"
      ),
    ]),
  );
  const standsFor = (id: string, server: string) =>
    catalog.servers.some(({ name, standIn }) =>
      name === server && standIn === id
    );
  const ofModels = [...catalog.values()].flatMap(({ id, kind, backends }) =>
    backends.map((config): Question => {
      const first = standsFor(id, config.name) && firsts.get(config.name);
      const model = first || config.model;
      return { about: id, kind, config: { ...config, model } };
    })
  );
  const ofLists = catalog.servers.flatMap((server): Question[] => {
    const model = firsts.get(server.name);
    if (model === undefined) return [];
    const about = server.prefix + model;
    return [{ about, kind: "chat", config: { ...server.template, model } }];
  });
  const whatOf = ({ kind, config }: Question) =>
    JSON.stringify([kind, config.base_url, config.api_key_env, config.model]);
  const all = [...ofModels, ...ofLists].flatMap(withEachKey);
  return [...new Map(all.toReversed().map((each) => [whatOf(each), each]))]
    .map(([, question]) => question).reverse();
}
