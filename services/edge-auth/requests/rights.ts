/** The rights of a key, for requests that are not admitted. */
import type { Catalog } from "@gateway/shared/models/catalog";
import { type ModelKind, scopeOf } from "@gateway/shared/models/kinds";
import type { Admission } from "../limits/admission.ts";
import type { Caller } from "../limits/callers/caller.ts";
import { refusalError } from "../limits/refusal.ts";

/** The rights that a request needs. */
export interface RightsNeeded {
  /** The kinds of models that it may be for: the right to one of them is enough. */
  kinds: readonly ModelKind[];
  /** The model as the client names it; null if it names none. */
  model: string | null;
}

/**
 * Throws the error of a key that may not use what a request asks for. Without it, a
 * fault in a request would tell the abilities of models to keys that may not use them.
 */
export async function requireRights(
  principal: Caller,
  { kinds, model }: RightsNeeded,
  { admission, catalog }: {
    admission: Pick<Admission, "modelsOf">;
    catalog: Catalog;
  },
): Promise<void> {
  const allowed = await modelsOfAny(principal, kinds, admission);
  const id = model === null ? undefined : catalog.find(model)?.id;
  if (id === undefined || allowed.length === 0 || allowed.includes(id)) return;
  throw refusalError({ isAdmitted: false, reason: "model" });
}

/** The models that a key may use, if it has the right to any of these kinds. */
async function modelsOfAny(
  principal: Caller,
  [kind, ...others]: readonly ModelKind[],
  admission: Pick<Admission, "modelsOf">,
): Promise<readonly string[]> {
  try {
    const scope = kind === undefined ? null : scopeOf(kind);
    return await admission.modelsOf(principal, scope);
  } catch (error) {
    if (others.length === 0) throw error;
    return await modelsOfAny(principal, others, admission);
  }
}
