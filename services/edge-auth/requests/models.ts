/** The list of models, in OpenAI's and in Anthropic's form. */
import { isExact } from "@gateway/shared/models/aliases";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import type { ModelObject } from "@gateway/shared/openai/completion";
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

/**
 * `GET /v1/models` and `GET /v1/models/{id}`: what the key may use, by ids and aliases,
 * in the form that the client's dialect has.
 */
export async function sendModels(
  { id, principal, exchange: { response } }: AuthenticatedCall,
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
  if (id === "" && isForAnthropic) sendJson(response, anthropicModels(data));
  else if (id === "") sendJson(response, { object: "list", data });
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

/** All of them: there are never further pages. */
const anthropicModels = (models: readonly ModelObject[]) => ({
  data: models.map(anthropicModel),
  has_more: false,
  first_id: models[0]?.id ?? null,
  last_id: models.at(-1)?.id ?? null,
});
