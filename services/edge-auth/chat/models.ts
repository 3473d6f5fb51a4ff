/** `GET /v1/models` and `GET /v1/models/{id}`: the models a key may use. */
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import { modelNotFound } from "./request.ts";
import type { ModelList, ModelObject } from "@gateway/shared/openai/chat";

/** The models of the catalog that are in `allowed`; an empty list allows all. */
export function listModels(
  catalog: Catalog,
  allowed: readonly string[],
): ModelList {
  const data: ModelObject[] = [];
  for (const model of catalog.values()) {
    if (mayUse(model.id, allowed)) data.push(toModelObject(model));
  }
  return { object: "list", data };
}

/** One model. Throws `model_not_found` for one that is unknown or not allowed: which of the two is nobody's business. */
export function getModel(
  catalog: Catalog,
  allowed: readonly string[],
  id: string,
): ModelObject {
  const model = catalog.get(id);
  if (model === undefined || !mayUse(id, allowed)) throw modelNotFound(id);
  return toModelObject(model);
}

function mayUse(id: string, allowed: readonly string[]): boolean {
  return allowed.length === 0 || allowed.includes(id);
}

function toModelObject(model: ModelConfig): ModelObject {
  return {
    id: model.id,
    object: "model",
    created: model.created,
    owned_by: model.ownedBy,
  };
}
