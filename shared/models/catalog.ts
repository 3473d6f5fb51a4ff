/**
 * The models of an installation: those of `models.json`, and those that servers list.
 */
import type { z } from "zod";
import type { ServerLists } from "../bus/server_lists.ts";
import { expectationOf } from "../openai/request_fault.ts";
import { ConfigError } from "../process/env.ts";
import {
  didYouMean,
  formatPath,
  isJsonObject,
  nameOfType,
} from "../process/error_text.ts";
import { NamedModels } from "./aliases.ts";
import { hasEquals, isHosted } from "./backend.ts";
import { CURRENCY_DEFAULT, type PriceTable, priceTable } from "./price_list.ts";
import {
  CREATED_DEFAULT,
  MEDIA,
  type ModelConfig,
  MODELS_MAX,
  modelsFileSchema,
} from "./models_file.ts";
import { QUEUE_DEFAULT } from "./queue.ts";
import { backendsOf, kindIn, pricesIn, type ServerConfig } from "./servers.ts";

export {
  type BackendConfig,
  type CatalogFile,
  catalogJsonSchema,
  DEFAULT_MODEL_ID,
  type Medium,
  type ModelConfig,
} from "./models_file.ts";

/**
 * All models by id: those of the file, in its order, then those that servers list, as
 * far as this process knows.
 */
export interface Catalog extends ReadonlyMap<string, ModelConfig> {
  /** The model that requests call by this name: its id, or an alias. */
  find(name: string): ModelConfig | undefined;
  /** The servers whose models are offered under the names that they have there. */
  readonly servers: readonly ServerConfig[];
  /** Whether a model is known, but no worker runs it at the moment. */
  isAway(id: string): boolean;
  /** Whether an operator has disabled a model: it is found by no name. */
  isDisabled(id: string): boolean;
  /** Whether nobody has said yet what one of the servers lists. */
  readonly isPending: boolean;
  /** What the prices of the models are together. */
  readonly prices: PriceTable;
  /** Changes with the models. */
  readonly revision: number;
  /** The models as they are now, whatever follows. */
  snapshot(): Catalog;
}

/** What a file of models says. */
export interface FileContent {
  readonly models: readonly ModelConfig[];
  readonly servers: readonly ServerConfig[];
  readonly prices: PriceTable;
}

/**
 * The models of a file, to which those that servers list are added. Whoever holds it
 * sees every change; a request that takes long holds a {@link snapshot}.
 */
export class ModelCatalog extends NamedModels<ModelConfig> implements Catalog {
  #file: FileContent;
  /** What the servers list; null: nobody has said it yet. */
  #lists: ServerLists | null = null;
  #away: ReadonlySet<string> = new Set();
  #disabled: ReadonlySet<string> = new Set();
  #revision = 0;

  constructor(
    models: readonly ModelConfig[],
    servers: readonly ServerConfig[] = [],
    prices: PriceTable = { currency: CURRENCY_DEFAULT, id: null },
  ) {
    super(models);
    this.#file = { models, servers, prices };
  }

  /** What the file says, without what servers list. */
  get file(): FileContent {
    return this.#file;
  }

  get servers(): readonly ServerConfig[] {
    return this.#file.servers;
  }

  get prices(): PriceTable {
    return this.#file.prices;
  }

  get isPending(): boolean {
    const lists = this.#lists ?? {};
    return this.servers.some(({ name }) => !Object.hasOwn(lists, name));
  }

  get revision(): number {
    return this.#revision;
  }

  isAway(id: string): boolean {
    return this.#away.has(id);
  }

  isDisabled(id: string): boolean {
    return this.#disabled.has(id);
  }

  /** Has exactly these models disabled from now on. */
  disable(ids: ReadonlySet<string>): void {
    this.#disabled = ids;
  }

  /** As {@link NamedModels.find}, but for models that are disabled. */
  override find(name: string): ModelConfig | undefined {
    const model = super.find(name);
    return model && this.#disabled.has(model.id) ? undefined : model;
  }

  /** Has what another file says from now on, and what its servers list. */
  replace(file: FileContent): void {
    this.#file = file;
    this.#update();
  }

  /**
   * Replaces the models that servers list. The names of the file count before theirs.
   */
  list(lists: ServerLists, away: ReadonlySet<string> = new Set()): void {
    this.#lists = lists;
    this.#away = away;
    this.#update();
  }

  snapshot(): Catalog {
    const { models, servers, prices } = this.#file;
    const now = new ModelCatalog(models, servers, prices);
    if (this.#lists !== null) now.list(this.#lists, this.#away);
    now.disable(this.#disabled);
    return now;
  }

  #update(): void {
    const { models, servers } = this.#file;
    this.setAll(models);
    const listed = listedModels(servers, this.#lists ?? {})
      .filter(({ id }) => !this.isNamed(id));
    for (const model of listed) this.set(model.id, model);
    this.#revision += 1;
  }
}

/** The models that servers list: one that several list has all of them. */
export function listedModels(
  servers: readonly ServerConfig[],
  lists: ServerLists,
): ModelConfig[] {
  const models = new Map<string, ModelConfig>();
  for (const server of servers) {
    for (const id of lists[server.name] ?? []) {
      const kind = kindIn(server, id);
      const model = models.get(id);
      if (kind === null || (model !== undefined && model.kind !== kind)) {
        continue;
      }
      const { owned_by } = model ?? { owned_by: server.name };
      const backends = [...model?.backends ?? [], ...backendsOf(server, id)];
      const prices = model?.prices ?? pricesIn(server, { id, kind });
      models.set(id, {
        id,
        aliases: [],
        kind,
        owned_by,
        created: CREATED_DEFAULT,
        // A server refuses what it lacks.
        accepts: new Set(kind === "chat" ? MEDIA : []),
        states_media: false,
        refuse_fields: [],
        only_known_fields: false,
        stateful: false,
        queue: QUEUE_DEFAULT,
        affinity: kind === "chat" && hasEquals(backends) ? "session" : "none",
        fetches_urls: backends.every((each) =>
          isHosted({ base_url: each.base_url, dialect: each.dialect_name })
        ),
        ...prices !== undefined && { prices },
        backends,
      });
    }
  }
  return [...models.values()];
}

/**
 * Converts the parsed `models.json` into a catalog with defaults. Throws a
 * {@link ConfigError} with all mistakes and their paths at once. An example is
 * `deploy/models.example.json`; `deploy/models.schema.json` describes every member.
 */
export function parseCatalog(
  json: unknown,
  currency = CURRENCY_DEFAULT,
): ModelCatalog {
  const tooMany = tooManyModels(json);
  if (tooMany !== null) throw new ConfigError("the models file", [tooMany]);
  const read = modelsFileSchema.safeParse(json, { reportInput: true });
  if (!read.success) {
    const mistakes = read.error.issues.flatMap((issue) => {
      const where = formatPath(issue.path) || "the file";
      const lines = describeIssue(issue).split("\n");
      return lines.map((what) => `${where}: ${what}`);
    });
    throw new ConfigError("the models file", mistakes);
  }
  const { models, servers } = read.data;
  const prices = priceTable(read.data, currency);
  return new ModelCatalog(models, servers, prices);
}

/**
 * The mistake of a list that is too long; null: it is not. Checking 10,000 models would
 * take a second, in which nothing else happens.
 */
function tooManyModels(json: unknown): string | null {
  const models = isJsonObject(json) ? json.models : null;
  const { length } = Array.isArray(models) ? models : [];
  return length > MODELS_MAX
    ? `models: expected at most ${MODELS_MAX} elements, got ${length}`
    : null;
}

/** One line for each mistake of the issue, without the value, which may be a secret. */
function describeIssue(issue: z.core.$ZodIssue): string {
  const { code, input, message } = issue;
  if (code === "invalid_key") {
    return issue.issues.map(({ message }) => message).join("\n");
  }
  if (input === undefined && code !== "custom") return "missing";
  if (!/^(invalid_type|invalid_value|too_\w+)$/.test(code)) return message;
  const { expected } = expectationOf(issue, input);
  if (code === "invalid_type") {
    return `expected ${expected}, got ${nameOfType(input)}`;
  }
  const names = code === "invalid_value" ? issue.values.map(String) : [];
  return `expected ${expected}${didYouMean(String(input), names)}`;
}
