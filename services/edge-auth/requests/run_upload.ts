/** Requests with a form: their bytes go to a worker while they arrive. */
import type { JobRequest, UploadEnd } from "@gateway/shared/bus/job";
import { scopeOf } from "@gateway/shared/models/kinds";
import { type Form, type FormBounds, readForm } from "../http/read_form.ts";
import { abandon } from "../http/responses.ts";
import {
  admit,
  type Endpoint,
  type RunCall,
  type RunRequestDependencies,
  startRun,
} from "./run_request.ts";

export type UploadEndpoint<Request extends JobRequest> =
  & Endpoint<Request>
  & { form: FormBounds };

/**
 * As `runRequest`, but the request is checked, admitted and run once the form has
 * ended: only then it is known.
 */
export async function runUpload<Request extends JobRequest>(
  call: RunCall,
  endpoint: UploadEndpoint<Request>,
  deps: RunRequestDependencies,
): Promise<void> {
  const { exchange, principal } = call;
  const { admission, refusedBodies, catalog, deadlines } = deps;
  const { kind, form: bounds } = endpoint;
  const { keyId } = principal;
  await admission.checkRefused(principal, kind);
  await admission.modelsOf(principal, scopeOf(kind));
  await refusedBodies.wait(keyId, deadlines);
  const form = readForm(exchange, { keyId, bounds, budget: deps });
  try {
    if (await form.begun === "left") return abandon(exchange.response);
    // If the model comes later, it is any of the kind: all workers of a kind run all
    // its models.
    const { model = null } = form.fields;
    const guess = catalog.values().find((each) =>
      each.kind === kind && (model ?? each.id) === each.id
    );
    // Without a model the request is refused, and there is no worker to send the file
    // to.
    if (guess === undefined) endpoint.parse(form.fields, catalog);
    else await upload(call, { endpoint, form, model: guess.id }, deps);
  } finally {
    form.stop();
    const { model } = form.fields;
    if (typeof model === "string") call.model = model;
  }
}

/**
 * Sends the form to a worker. Resolves when the request was admitted or its run has
 * ended.
 */
async function upload<Request extends JobRequest>(
  call: RunCall,
  { endpoint, form, model }: {
    endpoint: UploadEndpoint<Request>;
    form: Form;
    model: string;
  },
  deps: RunRequestDependencies,
): Promise<void> {
  const over = Promise.withResolvers<void>();
  let hasEnded = false;
  const admitForm = async (): Promise<UploadEnd | null> => {
    const { fields, files } = form;
    const request = endpoint.parse(fields, deps.catalog);
    form.requireFiles();
    const lease = await admit(call, endpoint, request, deps);
    // The run may have failed in the meantime.
    if (hasEnded) lease?.settle(null);
    else answer.lease = lease;
    job.request = request;
    over.resolve();
    // Without a lease nobody would pay for it.
    return answer.lease && { request, files };
  };
  const { job, answer } = startRun(call, endpoint, {
    request: { model, stream: false },
    lease: null,
    upload: {
      next: () => form.next(),
      end: () =>
        admitForm().catch((error: unknown) => {
          over.reject(error);
          throw error;
        }),
    },
    onEnded() {
      hasEnded = true;
      over.resolve();
    },
  }, deps);
  try {
    await Promise.race([over.promise, form.failed]);
  } catch (error) {
    call.hasRun = false;
    answer.isOver = true;
    answer.run.cancel("other");
    throw error;
  }
}
