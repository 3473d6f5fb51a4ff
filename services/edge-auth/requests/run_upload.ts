/**
 * Requests that upload files. The bytes go to a worker while they arrive, so that an
 * edge never holds a whole file. The request itself is known once the form has ended:
 * it is checked and admitted then, and only then does the worker run it.
 */
import type { JobRequest, UploadEnd } from "@gateway/shared/bus/job";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { type ModelKind, SCOPE_OF_KIND } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import { Form, type FormBounds, type FormFields } from "../http/read_form.ts";
import { abandon } from "../http/responses.ts";
import {
  admit,
  type AnswerOptions,
  type Endpoint,
  type RunCall,
  type RunOptions,
  type RunRequestDependencies,
  startRun,
} from "./run_request.ts";
import type { AnswerSink } from "../dispatch/outcome.ts";

/** The receiver of an answer, which an error may replace. */
export interface UploadAnswer extends AnswerSink {
  detach(): void;
}

export interface UploadEndpoint<Request extends JobRequest>
  extends Pick<Endpoint<Request>, "kind" | "estimate"> {
  form: FormBounds;
  /** Checks a form that has ended, and converts it. Throws an `ApiError` for the first fault. */
  parse(form: Pick<Form, "fields" | "files">, catalog: Catalog): Request;
  /** The receiver of the answer. `isStream` is called once the request is known. */
  answer(options: AnswerOptions, isStream: () => boolean): UploadAnswer;
}

/** Answers one request, as `runRequest` does. */
export async function runUpload<Request extends JobRequest>(
  call: RunCall,
  principal: Principal,
  endpoint: UploadEndpoint<Request>,
  dependencies: RunRequestDependencies,
): Promise<void> {
  const { exchange: { response }, exchange } = call;
  const { admission, refusedBodies, catalog, deadlines } = dependencies;
  const { keyId } = principal;
  const scope = SCOPE_OF_KIND[endpoint.kind];
  await admission.checkRefused(principal, endpoint.kind);
  await admission.modelsOf(principal, scope);
  await refusedBodies.wait(keyId, deadlines);
  const form = new Form(exchange, keyId, endpoint.form, dependencies);
  try {
    if (await form.begun === "left") return abandon(response);
    const model = modelOf(form.fields, endpoint.kind, catalog);
    // Without a model the request is refused, and there is no worker to send the file to.
    if (model === null) endpoint.parse(form, catalog);
    else await upload(call, principal, { endpoint, form, model }, dependencies);
  } finally {
    form.stop();
    const { model } = form.fields;
    if (typeof model === "string") call.model = model;
  }
}

/** The model of a form or, if that comes later, any of the kind: all workers of a kind run all its models. */
function modelOf(
  { model }: FormFields,
  kind: ModelKind,
  catalog: Catalog,
): string | null {
  const ids = catalog.values().filter((each) => each.kind === kind)
    .map(({ id }) => id).toArray();
  const isKnown = (id: string) => model === undefined || id === model;
  return ids.find(isKnown) ?? null;
}

/** Sends the form to a worker. Resolves when the request was admitted or its run has ended. */
async function upload<Request extends JobRequest>(
  call: RunCall,
  principal: Principal,
  { endpoint, form, model }: {
    endpoint: UploadEndpoint<Request>;
    form: Form;
    model: string;
  },
  dependencies: RunRequestDependencies,
): Promise<void> {
  const { kind } = endpoint;
  const over = Promise.withResolvers<ApiError | null>();
  const answers: UploadAnswer[] = [];
  const end = async (): Promise<UploadEnd> => {
    const request = endpoint.parse(form, dependencies.catalog);
    const lease = await admit(call, principal, endpoint, request, dependencies);
    Object.assign(options, { request, lease });
    over.resolve(null);
    return { request, files: form.files };
  };
  const options: RunOptions = {
    principal,
    kind,
    request: { model, stream: false },
    lease: null,
    upload: {
      next: () => form.next(),
      end: () =>
        end().catch((error: unknown) => {
          over.reject(error);
          throw error;
        }),
    },
    createAnswer(answerOptions) {
      const isStream = () => options.request.stream;
      const answer = endpoint.answer(answerOptions, isStream);
      answers.push(answer);
      return answer;
    },
    onEnded: () => over.resolve(null),
  };
  const run = startRun(call, options, dependencies);
  try {
    await Promise.race([over.promise, form.failed]);
  } catch (error) {
    options.isRefused = true;
    call.hasRun = false;
    for (const answer of answers) answer.detach();
    run.cancel("other");
    throw error;
  }
}
