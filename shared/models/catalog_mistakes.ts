import type * as z from "zod";
import { defaultBackendName } from "./catalog_schema.ts";
import {
  clip,
  formatPath,
  isJsonObject,
  valueAt,
} from "../process/error_text.ts";

/**
 * What is wrong with a models file, in words for the operator. These functions
 * look at the file as it was written, so that a mistake in one place does not
 * hide one in another.
 */

/** What zod found wrong with `json`, one line each; `root` names the whole. */
export function mistakesOf(
  checked: z.ZodSafeParseResult<unknown>,
  json: unknown,
  root: string,
): string[] {
  if (checked.success) return [];
  return checked.error.issues.flatMap((issue) => {
    const where = formatPath(issue.path) || root;
    return wordsFor(issue, json).map((words) => `${where}: ${words}`);
  });
}

function wordsFor(issue: z.core.$ZodIssue, json: unknown): string[] {
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => `unknown member '${clip(key)}'`);
    case "invalid_key":
      return issue.issues.map(({ message }) => message);
    case "invalid_union":
      return [
        "options" in issue && issue.options !== undefined
          ? `expected one of ${issue.options.join(", ")}`
          : issue.message,
      ];
    default:
      return valueAt(json, issue.path) === undefined
        ? ["missing"]
        : [issue.message.replace(/^Invalid input: /, "")];
  }
}

/** Ids of models and names of a model's backends that occur twice. */
export function duplicatesIn(json: unknown): string[] {
  const models = membersOf(json, "models");
  return [
    ...repeated(models, "id").map(([index, id]) =>
      `models[${index}].id: another model is called '${id}' too`
    ),
    ...models.flatMap((model, at) =>
      repeated(namedBackendsOf(model), "name").map(([index, name]) =>
        `models[${at}].backends[${index}].name: another backend of this model ` +
        `is called '${name}' too`
      )
    ),
  ];
}

/** Bounds that exclude one another. */
export function contradictionsIn(json: unknown): string[] {
  return membersOf(json, "models").flatMap((model, index) => {
    const { context_tokens: context, output_tokens: output } = model;
    const isBroken = typeof context === "number" &&
      typeof output === "number" && output > context;
    return isBroken
      ? [`models[${index}].output_tokens: larger than context_tokens`]
      : [];
  });
}

type Member = { readonly [name: string]: unknown };

/** The objects in the list `name` of `parent`; anything else counts as empty. */
function membersOf(parent: unknown, name: string): Member[] {
  const list = valueAt(parent, [name]);
  if (!Array.isArray(list)) return [];
  return list.map((member) => isJsonObject(member) ? member : {});
}

/** The backends of a model, those without a name under the one they will get. */
function namedBackendsOf(model: Member): Member[] {
  return membersOf(model, "backends").map((backend, index) => ({
    name: defaultBackendName(String(backend.type), index),
    ...backend,
  }));
}

/** Position and text of each member whose `name` was seen before. */
function repeated(members: Member[], name: string): [number, string][] {
  const seen = new Set<string>();
  const found: [number, string][] = [];
  for (const [index, member] of members.entries()) {
    const value = member[name];
    if (typeof value !== "string") continue;
    if (seen.has(value)) found.push([index, clip(value)]);
    seen.add(value);
  }
  return found;
}
