/** Models and their servers: how they do, and taking them out of use. */
import { isDeepStrictEqual } from "node:util";
import {
  type Override,
  type OverrideTarget,
  overrideWeight,
  targetOf,
} from "@gateway/shared/backends/overrides";
import { z } from "zod";
import { modelJson, overrideJson } from "../domain/models/model_json.ts";
import { modelViews, othersInUse } from "../domain/models/model_views.ts";
import type { ConnectedWorkers } from "../domain/models/connected_workers.ts";
import { MODELS, OVERRIDE } from "./answers.ts";
import { NO_BODY, NOTHING, reason } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
  operatorOf,
} from "./route.ts";

async function list(
  { deps }: Pick<AdminCall<unknown, unknown>, "deps">,
): Promise<AdminAnswer> {
  await using workers = await deps.askWorkers();
  const views = modelViews(deps.catalog, workers);
  const overrides = await deps.overrides.list();
  return {
    json: {
      workers: workers.follower.workers,
      list_mistakes: workers.mistakes(),
      models: views.map((view) => modelJson(view, deps.now())),
      overrides: overrides.map(overrideJson),
    },
  };
}

/** What a request is to change: a model, or one of its servers. */
const targetIn = (
  { id: model, params: { server: backend = "" } }: AdminCall<unknown, unknown>,
) => ({ model, backend });

/** Throws unless there is such a model or server. */
function checkTarget(
  { catalog }: AdminDeps,
  workers: ConnectedWorkers,
  { model, backend }: { model: string; backend: string },
) {
  const views = modelViews(catalog, workers);
  const view = views.find(({ id }) => id === model);
  if (view === undefined) {
    throw new AdminRefused("not_found", "There is no model of this id");
  }
  const isThere = view.servers.some((each) => each.backend === backend);
  if (backend === "" || isThere) return view;
  throw new AdminRefused("not_found", "The model has no server of this name");
}

/** Makes an override, unless there is the same already. */
async function set(
  call: AdminCall<unknown, { reason?: string | undefined }>,
  override: Override,
): Promise<AdminAnswer> {
  const { deps, body: { reason = "" } } = call;
  const target = targetIn(call);
  await using workers = await deps.askWorkers();
  const view = checkTarget(deps, workers, target);
  const all = await deps.overrides.list();
  const before = all.find((each) => targetOf(each) === targetOf(override));
  const isSame = isDeepStrictEqual(
    { ...before, by: "", atMs: 0 },
    { ...override, reason, by: "", atMs: 0 },
  );
  if (!isSame) await deps.overrides.set(override, operatorOf(call), reason);
  const others = othersInUse(view, target.backend, all);
  return {
    json: {
      ...override,
      undone: false,
      told: await workers.tellOverrides(),
      last_server: override.what === "drain" && others.length === 0,
    },
  };
}

/** Undoes an override, also of what is no longer in the list. */
async function undo(
  call: AdminCall<unknown, unknown>,
  what: OverrideTarget["what"],
): Promise<AdminAnswer> {
  const { deps } = call;
  const { model, backend } = targetIn(call);
  const target = { what, model, ...backend !== "" && { backend } };
  await using workers = await deps.askWorkers();
  if (!await deps.overrides.remove(target, operatorOf(call))) {
    throw new AdminRefused("not_found", "There is no such change to undo");
  }
  const isTold = await workers.tellOverrides();
  return {
    json: { ...target, undone: true, told: isTold, last_server: false },
  };
}

const WHY = z.strictObject({ reason: reason.optional() });
const ONE = { scope: "models", query: NOTHING, answers: OVERRIDE } as const;
const SERVER = "/models/:id/servers/:server";

/** Routes of models. The id of a model is percent-encoded: `org%2Fmodel`. */
export const MODEL_ROUTES = [
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/models",
    summary:
      "List all models with their servers, how these do, what is wrong with the list, and what operators have changed",
    body: NO_BODY,
    answers: MODELS,
    run: list,
  }),
  adminRoute({
    ...ONE,
    method: "PUT",
    path: "/models/:id/disabled",
    summary: "Refuse requests for a model. Twice is the same as once",
    body: WHY,
    run: (call) => set(call, { what: "disable", model: call.id }),
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: "/models/:id/disabled",
    summary: "Accept requests for a model again",
    body: NO_BODY,
    run: (call) => undo(call, "disable"),
  }),
  adminRoute({
    ...ONE,
    method: "PUT",
    path: `${SERVER}/drained`,
    summary: "Send a server of a model nothing new. Twice is the same as once",
    body: WHY,
    run: (call) => set(call, { what: "drain", ...targetIn(call) }),
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: `${SERVER}/drained`,
    summary: "Take a server back",
    body: NO_BODY,
    run: (call) => undo(call, "drain"),
  }),
  adminRoute({
    ...ONE,
    method: "PUT",
    path: `${SERVER}/weight`,
    summary:
      "Change the share of a server among those of the same preference. Twice is the same as once",
    body: WHY.extend({ weight: overrideWeight }),
    run: (call) =>
      set(call, {
        what: "weight",
        ...targetIn(call),
        weight: call.body.weight,
      }),
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: `${SERVER}/weight`,
    summary: "Give a server the weight of the list again",
    body: NO_BODY,
    run: (call) => undo(call, "weight"),
  }),
];
