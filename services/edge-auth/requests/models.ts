/** The list of models, in OpenAI's and in Anthropic's form. */
import { z } from "zod";
import { isExact } from "@gateway/shared/models/aliases";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import type { ModelObject } from "@gateway/shared/openai/completion";
import { fieldError } from "@gateway/shared/openai/error";
import { integer } from "@gateway/shared/openai/fields";
import { checked } from "@gateway/shared/openai/request_fault";
import { sendJson } from "../http/responses.ts";
import type { Admission } from "../limits/admission.ts";
import { ANSWERED, type AuthenticatedCall, type CallEnd } from "./call.ts";
import { modelNotFound } from "./body/parse_request.ts";

/** What listing models needs. */
export interface ModelsDependencies {
  catalog: Catalog;
  admission: Pick<Admission, "modelsOf">;
  /** Whether a worker has a model, or nothing is known of the workers of its kind. */
  isRun(model: Pick<ModelConfig, "id" | "kind">): boolean;
}

const MS_PER_SECOND = 1_000;
/** As many as Anthropic lists at most. */
const PAGE_MAX = 1_000;

/** The query of Anthropic's list, which is read in pages. */
const pageQuery = z.object({
  limit: z.coerce.number().pipe(integer(1, PAGE_MAX)).default(Infinity),
  after_id: z.string().exactOptional(),
  before_id: z.string().exactOptional(),
});

/**
 * `GET /v1/models` and `GET /v1/models/{id}`: what the key may use, by ids and aliases,
 * in the form that the client's dialect has. Anthropic's is read in pages, as
 * https://docs.claude.com/en/api/models-list says; OpenAI's has none.
 */
export async function sendModels(
  { id, principal, exchange: { response, query } }: AuthenticatedCall,
  { admission, catalog, isRun }: ModelsDependencies,
): Promise<CallEnd> {
  const allowed = await admission.modelsOf(principal, "models");
  const isAllowed = ({ id, kind }: ModelConfig) =>
    !catalog.isAway(id) && !catalog.isDisabled(id) && isRun({ id, kind }) &&
    (allowed.length === 0 || allowed.includes(id));
  const data = catalog.values().filter(isAllowed)
    .flatMap((model) => namesOf(model).map((name) => modelObject(name, model)))
    .toArray();
  const found = catalog.find(id);
  const model = found !== undefined && isAllowed(found)
    ? modelObject(id, found)
    : undefined;
  const isForAnthropic = response.envelope === "anthropic";
  if (id === "" && isForAnthropic) {
    sendJson(response, anthropicModels(data, query));
  } else if (id === "") sendJson(response, { object: "list", data });
  // Also for a model that the key may not use.
  else if (model === undefined) throw modelNotFound(id);
  else sendJson(response, isForAnthropic ? anthropicModel(model) : model);
  return ANSWERED;
}

/** The id of a model, and its aliases that are names and not beginnings of names. */
const namesOf = ({ id, aliases }: ModelConfig): readonly string[] => [
  id,
  ...aliases.filter(isExact),
];

const modelObject = (
  name: string,
  { created, owned_by }: ModelConfig,
): ModelObject => ({ id: name, object: "model", created, owned_by });

/** A model as https://docs.claude.com/en/api/models-list has it. */
const anthropicModel = ({ id, created }: ModelObject) => ({
  type: "model",
  id,
  display_name: id,
  created_at: new Date(created * MS_PER_SECOND).toISOString(),
});

/** The page of the list that is asked for; without a `limit`, all that is left. */
function anthropicModels(models: readonly ModelObject[], query: string) {
  const { limit, after_id: after, before_id: before } = checked(
    pageQuery,
    Object.fromEntries(new URLSearchParams(query)),
  );
  const from = after === undefined ? 0 : indexOf(models, "after_id", after) + 1;
  const to = before === undefined
    ? models.length
    : indexOf(models, "before_id", before);
  const selected = models.slice(from, to);
  // Backwards, a page ends where the one before it began.
  const isBackwards = before !== undefined && after === undefined;
  const page = isBackwards
    ? selected.slice(Math.max(0, selected.length - limit))
    : selected.slice(0, limit);
  return {
    data: page.map(anthropicModel),
    has_more: page.length < selected.length,
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
  };
}

/** Where a model of the query stands; throws `invalid_value` if it is not listed. */
function indexOf(
  models: readonly ModelObject[],
  param: keyof z.infer<typeof pageQuery>,
  wanted: string,
): number {
  const index = models.findIndex(({ id }) => id === wanted);
  if (index >= 0) return index;
  const message = `Invalid '${param}': there is no such model in the list.`;
  throw fieldError("invalid_value", param, message);
}
