/** The names by which requests call models: ids, and aliases of the models file. */

/** What names a model. */
export interface Named {
  readonly id: string;
  /** Names, or beginnings of names, which end with `*`. */
  readonly aliases: readonly string[];
}

const WILDCARD = "*";

/** Whether an alias is one name, and not the beginning of many. */
export const isExact = (alias: string): boolean => !alias.endsWith(WILDCARD);

/** A beginning of names, without its wildcard. */
interface Beginning<Model> {
  readonly text: string;
  readonly model: Model;
}

/** Models by their ids, which are also found by their aliases. */
export class NamedModels<Model extends Named> extends Map<string, Model> {
  #exact: ReadonlyMap<string, Model> = new Map();
  /** The longest first, which counts. */
  #beginnings: readonly Beginning<Model>[] = [];

  constructor(models: readonly Model[]) {
    super();
    this.setAll(models);
  }

  /** Has these models instead of all others. */
  protected setAll(models: readonly Model[]): void {
    this.clear();
    for (const model of models) this.set(model.id, model);
    const names = models.flatMap((model) =>
      model.aliases.map((alias) => ({ alias, model }))
    );
    this.#exact = new Map(
      names.filter(({ alias }) => isExact(alias))
        .map(({ alias, model }) => [alias, model]),
    );
    this.#beginnings = names.filter(({ alias }) => !isExact(alias))
      .map(({ alias, model }) => ({ text: alias.slice(0, -1), model }))
      .sort((a, b) => b.text.length - a.text.length);
  }

  /**
   * The model of a name: of this id, else with this alias, else with the longest alias
   * that is a beginning of the name. None has the empty name.
   */
  find(name: string): Model | undefined {
    if (name === "") return undefined;
    return this.get(name) ?? this.#exact.get(name) ??
      this.#beginnings.find(({ text }) => name.startsWith(text))?.model;
  }

  /** Whether a name is an id or an alias, and not just of one beginning. */
  isNamed(name: string): boolean {
    return this.has(name) || this.#exact.has(name);
  }
}

/** What is wrong with an alias, and where it stands in the list of models. */
export interface AliasMistake {
  readonly path: (string | number)[];
  readonly message: string;
}

/** The aliases that are the id or an alias of another model, or are repeated. */
export function aliasMistakes(models: readonly Named[]): AliasMistake[] {
  const ids = new Set(models.map(({ id }) => id));
  const ownerOf = new Map<string, string>();
  const mistakes: AliasMistake[] = [];
  for (const [index, { id, aliases }] of models.entries()) {
    for (const [at, alias] of aliases.entries()) {
      const owner = ids.has(alias) ? alias : ownerOf.get(alias);
      ownerOf.set(alias, id);
      if (owner === undefined) continue;
      const whose = ids.has(alias) ? "the id" : "an alias";
      mistakes.push({
        path: [index, "aliases", at],
        message: `the model '${id}' cannot be called '${alias}': that is ` +
          `${whose} of the model '${owner}'`,
      });
    }
  }
  return mistakes;
}
