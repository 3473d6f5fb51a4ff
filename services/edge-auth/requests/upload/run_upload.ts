/** Handles requests with a form, whose bytes go to a worker while they arrive. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import { scopeOf } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import { Form, type FormFields } from "../../http/read_form.ts";
import { type AuthenticatedCall, type CallEnd, refused } from "../call.ts";
import type { UploadEndpoint } from "../endpoint.ts";
import { asksToKeep } from "../keep_headers.ts";
import { refuseToKeep } from "../keeper.ts";
import { requireRights } from "../rights.ts";
import { left, type RunRequestDependencies } from "../run_request.ts";
import { UploadRun } from "./upload_run.ts";

/** The file whose length is what a request costs. */
const METERED_FILE = "file";

/**
 * As `runRequest`, but in two steps: the first byte of a file admits the request with
 * what is known by then, and the end of the form corrects that.
 */
export async function runUpload<Request extends JobRequest>(
  call: AuthenticatedCall,
  endpoint: UploadEndpoint<Request>,
  live: RunRequestDependencies,
): Promise<CallEnd> {
  const { exchange, principal } = call;
  const { admission, refusedBodies, deadlines } = live;
  const { kind } = endpoint;
  const { keyId } = principal;
  // A form may take minutes, in which its model may be taken out of the list.
  const deps = { ...live, catalog: live.catalog.snapshot() };
  if (asksToKeep(call.keep)) refuseToKeep(call, live);
  await admission.checkRefused(principal, kind);
  await admission.modelsOf(principal, scopeOf(kind));
  await refusedBodies.wait(keyId, deadlines);
  const bounds = {
    files: endpoint.form.files,
    fileBytesMax: (fields: FormFields) => fileBytesMax(fields, endpoint, deps),
  };
  const meter = endpoint.meter?.(deps.catalog) ?? null;
  const onFileBytes = meter === null
    ? undefined
    : (field: string, bytes: Uint8Array) => {
      if (field === METERED_FILE) meter.add(bytes);
    };
  const form = new Form(exchange, { keyId, bounds, budget: deps, onFileBytes });
  try {
    if (await form.beginning === "left") return left(call);
    const model = modelFor(form, endpoint, deps);
    const start = { endpoint, form, model, meter };
    return await new UploadRun(call, start, deps).handle();
  } catch (error) {
    const { model } = form.fields;
    if (typeof model === "string" && error instanceof ApiError) {
      await requireRights(principal, { kinds: [kind], model }, deps);
    }
    return refused(error, model);
  } finally {
    form.stop();
  }
}

/**
 * The model whose workers get the files. If its name comes after them, it is any of the
 * kind: all workers of a kind run all its models. Throws an `ApiError` if there is
 * none.
 */
function modelFor<Request extends JobRequest>(
  { fields }: Pick<Form, "fields">,
  { kind, parse }: UploadEndpoint<Request>,
  { catalog }: Pick<RunRequestDependencies, "catalog">,
): string {
  const { model: name } = fields;
  const fits = (model: ModelConfig | undefined) => model?.kind === kind;
  const model = name === undefined
    ? catalog.values().find((each) =>
      fits(each) && !catalog.isDisabled(each.id)
    )
    : [modelOf(name, catalog)].find(fits);
  return model?.id ?? parse(fields, catalog).model;
}

/** The model that a field names. */
const modelOf = (
  name: FormFields[string] | undefined,
  catalog: Catalog,
): ModelConfig | undefined =>
  typeof name === "string" ? catalog.find(name) : undefined;

/**
 * The size of one file for the model of a form, or while that is not known, for any.
 */
function fileBytesMax<Request extends JobRequest>(
  { model: name }: FormFields,
  { kind, form }: UploadEndpoint<Request>,
  { catalog }: Pick<RunRequestDependencies, "catalog">,
): number {
  const models = [...catalog.values()].filter((model) => model.kind === kind);
  const target = modelOf(name, catalog);
  const bounds = (target?.kind === kind ? [target] : models)
    .map(({ file_bytes: bytes }) => bytes ?? form.fileBytesMax);
  return bounds.length > 0 ? Math.max(...bounds) : form.fileBytesMax;
}
