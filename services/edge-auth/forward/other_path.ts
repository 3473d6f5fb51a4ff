/** Requests to paths of model servers that only their operator knows. */
import { readForwardBody, spanOf } from "@gateway/shared/forward/body";
import { requestHeaders } from "@gateway/shared/forward/passed_headers";
import type { ForwardRequest } from "@gateway/shared/forward/request";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { fieldError } from "@gateway/shared/openai/error";
import type { WallNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { costsNothing } from "../limits/cost.ts";
import type { Call } from "../requests/call.ts";
import type { Endpoint } from "../requests/endpoint.ts";
import { parseRequest } from "../requests/body/parse_request.ts";
import { ForwardAnswer } from "./answer.ts";
import { requireAllowed, requirePath } from "./checks.ts";
import { DecodedBody, modelSchema } from "./endpoint.ts";

/** Members that must not be repeated: a server might believe another one. */
const SINGLE = ["model", "stream"];
const MS_PER_SECOND = 1_000;

/**
 * The endpoint of such a path, for one request of it. It needs the right to the kind of
 * its model and is counted as a request, but costs no tokens.
 */
export function forwardToPath(
  path: string,
  { exchange: { headers }, requestId }: Call,
  { wallNow, catalog }: { wallNow: WallNow; catalog: Catalog },
): Endpoint<ForwardRequest> {
  const kindOf = (id: string) => catalog.get(id)?.kind ?? "chat";
  const kinds = kindsWith(path, catalog);
  return {
    kind: kinds[0] ?? "chat",
    isUnmetered: true,
    kindOf: ({ model }) => kindOf(model),
    kindsFor(model) {
      const kind = model === null ? undefined : catalog.find(model)?.kind;
      return kind === undefined ? kinds : [kind];
    },
    decode: (bytes) => new DecodedBody(readForwardBody(bytes, SINGLE)),
    parse: (decoded, models) => ({
      ...readPathRequest(decoded, path, models),
      headers: requestHeaders(headers),
    }),
    estimate: costsNothing,
    answer: ({ model }) => (options) =>
      new ForwardAnswer(options, {
        endpoint: "other",
        stream: false,
        model,
        requestId: publicRequestId(requestId),
        created: Math.floor(wallNow() / MS_PER_SECOND),
      }),
  };
}

/** The kinds of the models that have a server with such a path. */
function kindsWith(path: string, catalog: Catalog): ModelKind[] {
  const models = catalog.values().filter(({ backends }) =>
    backends.some((each) => each.forward_paths.includes(path))
  );
  return [...new Set(models.map(({ kind }) => kind))];
}

function readPathRequest(
  decoded: unknown,
  path: string,
  models: Catalog,
): Omit<ForwardRequest, "headers"> {
  if (!(decoded instanceof DecodedBody)) throw new TypeError("Not decoded");
  const { body } = decoded;
  const { request, model } = parseRequest(body.value, {
    schema: modelSchema,
    kind: null,
    models,
  });
  requirePath(path, model);
  requireAllowed("other", body, { model, outputTokensMax: null });
  if (body.value.stream === true) {
    const message = `Unsupported 'stream': ${path} has whole answers here.`;
    throw fieldError("unsupported_value", "stream", message);
  }
  const modelAt = spanOf(body, "model");
  if (modelAt === null) throw new TypeError("A body without its model");
  return {
    model: request.model,
    stream: false,
    forward: "other",
    path,
    // The operator has named a path, and no more.
    query: "",
    body: body.text,
    modelAt: { from: modelAt.from, to: modelAt.to },
    promptTokens: 0,
    choices: 1,
    outputTokensMax: null,
    vectors: null,
  };
}
