/**
 * Requests that upload files. The bytes go to a worker while they arrive, so that an
 * edge never holds a whole file. The request itself is known once the form has ended:
 * it is checked and admitted then, and only then does the worker run it.
 */
import type { JobRequest, UploadEnd } from "@gateway/shared/bus/job";
import { scopeOf } from "@gateway/shared/models/kinds";
import { Form, type FormBounds } from "../http/read_form.ts";
import { abandon } from "../http/responses.ts";
import type {
  Endpoint,
  RunCall,
  RunRequestDependencies,
} from "./run_request.ts";
import { admit, startRun } from "./run_request.ts";

export type UploadEndpoint<Request extends JobRequest> =
  & Endpoint<Request>
  & { form: FormBounds };

/** Answers one request, as `runRequest` does. */
export async function runUpload<Request extends JobRequest>(
  call: RunCall,
  endpoint: UploadEndpoint<Request>,
  deps: RunRequestDependencies,
): Promise<void> {
  const { exchange, principal } = call;
  const { admission, refusedBodies, catalog, deadlines } = deps;
  const { kind } = endpoint;
  await admission.checkRefused(principal, kind);
  await admission.modelsOf(principal, scopeOf(kind));
  await refusedBodies.wait(principal.keyId, deadlines);
  const form = new Form(exchange, principal.keyId, endpoint.form, deps);
  try {
    if (await form.begun === "left") return abandon(exchange.response);
    // If the model comes later, it is any of the kind: all workers of a kind run all its models.
    const { model = null } = form.fields;
    const guess = catalog.values().find((each) =>
      each.kind === kind && (model ?? each.id) === each.id
    );
    // Without a model the request is refused, and there is no worker to send the file to.
    if (guess === undefined) endpoint.parse(form.fields, catalog, form.files);
    else await upload(call, { endpoint, form, model: guess.id }, deps);
  } finally {
    form.stop();
    const { model } = form.fields;
    if (typeof model === "string") call.model = model;
  }
}

/** Sends the form to a worker. Resolves when the request was admitted or its run has ended. */
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
  const admitForm = async (): Promise<UploadEnd> => {
    const { fields, files } = form;
    const request = endpoint.parse(fields, deps.catalog, files);
    const lease = await admit(call, endpoint, request, deps);
    // The run may have failed in the meantime.
    if (hasEnded) lease?.settle(null);
    else answer.lease = lease;
    job.request = request;
    over.resolve();
    return { request, files };
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
    answer.detach();
    answer.run.cancel("other");
    throw error;
  }
}
