/** The endpoints whose requests are forwarded as they are. */
import {
  type ForwardBody,
  readForwardBody,
  spanOf,
} from "@gateway/shared/forward/body";
import {
  forwardEndpoint,
  type ForwardName,
} from "@gateway/shared/forward/endpoints";
import { requestHeaders } from "@gateway/shared/forward/passed_headers";
import type { ForwardRequest } from "@gateway/shared/forward/request";
import { bodyTokens } from "@gateway/shared/forward/size";
import { inputsIn } from "@gateway/shared/forward/vectors";
import { TOKEN_LIMITS } from "@gateway/shared/limits";
import type { Catalog } from "@gateway/shared/models/catalog";
import { fieldError } from "@gateway/shared/openai/error";
import { model } from "@gateway/shared/openai/fields";
import { findRefusedField } from "@gateway/shared/openai/refused_fields";
import * as z from "zod";
import type { Exchange } from "../http/exchange.ts";
import type { Estimate } from "../limits/cost.ts";
import type { Endpoint } from "../requests/endpoint.ts";
import { parseRequest } from "../requests/parse_request.ts";
import { ForwardAnswer } from "./answer.ts";

/**
 * Members that must not be repeated: the server might believe another one than the
 * gateway.
 */
const SINGLE = ["model", "stream"];

const governed = z.object({ model });

/** The endpoint of this name, for one request of it. */
export function forwardTo(
  name: ForwardName,
  { headers, query }: Pick<Exchange, "headers" | "query">,
): Endpoint<ForwardRequest> {
  const { kind } = forwardEndpoint(name);
  return {
    kind,
    decode: (bytes) => new GivenBody(readForwardBody(bytes, SINGLE)),
    parse(given, models) {
      if (!(given instanceof GivenBody)) throw new TypeError("Not decoded");
      const { body } = given;
      const { request } = parseRequest(body.value, {
        schema: governed,
        kind,
        models,
      });
      requirePassable(body);
      const modelAt = spanOf(body, "model");
      if (modelAt === null) throw new TypeError("A body without its model");
      return {
        model: request.model,
        stream: false,
        forward: name,
        query: query === "" ? "" : `?${query}`,
        headers: requestHeaders(headers),
        body: body.text,
        modelAt: { from: modelAt.from, to: modelAt.to },
        ...sizeOf(name, body),
      };
    },
    estimate: estimateInput,
    answer: ({ stream }) => (options) => new ForwardAnswer(options, stream),
  };
}

/** A body between its decoding and its check, with the model that errors name. */
class GivenBody {
  constructor(readonly body: ForwardBody) {}

  /** As the client named it. */
  get model(): unknown {
    return this.body.value.model;
  }
}

function requirePassable({ value }: ForwardBody): void {
  const field = findRefusedField(value, { maxTokens: undefined });
  if (field === null) return;
  throw fieldError("unsupported_parameter", field.param, field.message);
}

/** What a request costs at least, and the vectors that must answer it. */
function sizeOf(
  name: ForwardName,
  { value, text }: ForwardBody,
): Pick<ForwardRequest, "promptTokens" | "vectors"> {
  if (name === "rerank") {
    return { promptTokens: bodyTokens(text), vectors: null };
  }
  if (!Object.hasOwn(value, "input")) {
    // vLLM embeds `messages`, too.
    return { promptTokens: bodyTokens(text), vectors: null };
  }
  const { count, tokens } = inputsIn(value.input);
  return { promptTokens: Math.max(1, tokens), vectors: count };
}

/** A model that makes no tokens reserves those of the input. */
function estimateInput(
  { model, promptTokens, vectors }: ForwardRequest,
  catalog: Catalog,
): Estimate {
  const { context_tokens: contextTokens = TOKEN_LIMITS.contextTokensMax } =
    catalog.get(model) ?? {};
  return {
    promptTokens,
    totalTokens: promptTokens,
    believed: {
      promptTokensMax: Math.max(promptTokens, contextTokens * (vectors ?? 1)),
      completionTokensMax: 0,
    },
    units: null,
  };
}
