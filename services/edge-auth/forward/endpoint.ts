/** The endpoints whose requests are forwarded as they are. */
import {
  type ForwardBody,
  readForwardBody,
  spanOf,
} from "@gateway/shared/forward/body";
import {
  type ForwardEndpoint,
  forwardEndpoint,
  type ForwardName,
} from "@gateway/shared/forward/endpoints";
import { requestHeaders } from "@gateway/shared/forward/passed_headers";
import type { ForwardRequest } from "@gateway/shared/forward/request";
import { bodyTokens } from "@gateway/shared/forward/size";
import { inputsIn } from "@gateway/shared/forward/vectors";
import { REQUEST_LIMITS, TOKEN_LIMITS } from "@gateway/shared/limits";
import type { Catalog, ModelConfig } from "@gateway/shared/models/catalog";
import { integer, model, nullable } from "@gateway/shared/openai/fields";
import { z } from "zod";
import type { WallNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import {
  costsNothing,
  type Estimate,
  estimateGeneration,
  type ModelLengths,
} from "../limits/cost.ts";
import type { Call } from "../requests/call.ts";
import type { Endpoint } from "../requests/endpoint.ts";
import { parseRequest } from "../requests/body/parse_request.ts";
import { ForwardAnswer } from "./answer.ts";
import { requireAllowed, requireSpeaker } from "./checks.ts";
import { OUTPUT_BOUNDS, withinBounds } from "./output_bounds.ts";

const MS_PER_SECOND = 1_000;
/** Members that must not be repeated: a server might believe another one. */
const SINGLE = ["model", "stream"];
const outputTokens = integer(0);

/** The members that govern, in any dialect; all others are the server's business. */
const governingSchema = nullable(z.object({
  model,
  stream: z.boolean().exactOptional(),
  n: integer(1, REQUEST_LIMITS.nMax).exactOptional(),
  max_tokens: outputTokens.exactOptional(),
  max_completion_tokens: outputTokens.exactOptional(),
  max_output_tokens: outputTokens.exactOptional(),
}));
/**
 * What governs a request to an endpoint that generates nothing. `stream` is checked,
 * too, since servers take texts and numbers for booleans.
 */
export const modelSchema = nullable(z.object({
  model,
  stream: z.boolean().exactOptional(),
}));

/** The members of a body that govern. */
interface GoverningMembers {
  model: string;
  stream?: boolean;
  n?: number;
  max_tokens?: number;
  max_output_tokens?: number;
}

/** The endpoint of this name, for one request of it. */
export function forwardTo(
  name: Exclude<ForwardName, "other">,
  { exchange: { headers, query }, requestId }: Call,
  { wallNow }: { wallNow: WallNow },
): Endpoint<ForwardRequest> {
  const endpoint = forwardEndpoint(name);
  const { kind, outputBound, isFree } = endpoint;
  const single = outputBound === null ? SINGLE : [...SINGLE, ...OUTPUT_BOUNDS];
  return {
    kind,
    isFree,
    isKept: !isFree,
    decode: (bytes) => new DecodedBody(readForwardBody(bytes, single)),
    parse(decoded, models) {
      if (!(decoded instanceof DecodedBody)) throw new TypeError("Not decoded");
      const { value } = decoded.body;
      const schema: z.ZodType<GoverningMembers> = outputBound === null
        ? modelSchema
        : governingSchema;
      const parsed = parseRequest(value, { schema, kind, models });
      const options = optionsOf(endpoint, parsed);
      requireSpeaker(name, parsed.model);
      requireAllowed(name, decoded.body, { model: parsed.model, ...options });
      const body = outputBound === null
        ? decoded.body
        : withinBounds(decoded.body, longestOf(parsed.model));
      const modelAt = spanOf(body, "model");
      if (modelAt === null) throw new TypeError("A body without its model");
      return {
        ...options,
        model: parsed.request.model,
        forward: name,
        query: query === "" ? "" : `?${query}`,
        headers: requestHeaders(headers),
        body: body.text,
        modelAt: { from: modelAt.from, to: modelAt.to },
        ...sizeOf(name, body),
        choices: options.choices * promptsIn(name, body),
      };
    },
    members: (decoded: unknown) =>
      decoded instanceof DecodedBody ? decoded.body.value : undefined,
    ...kind === "chat" && {
      conversation: (decoded: unknown) =>
        decoded instanceof DecodedBody ? decoded.body.value : undefined,
    },
    estimate: (request, catalog) =>
      isFree ? costsNothing() : estimateOf(endpoint, request, catalog),
    answer: ({ stream, model }) => (options) =>
      new ForwardAnswer(options, {
        endpoint: name,
        stream,
        model,
        requestId: publicRequestId(requestId),
        created: Math.floor(wallNow() / MS_PER_SECOND),
      }),
  };
}

/** A body between its decoding and its check, with the model that errors name. */
export class DecodedBody {
  constructor(readonly body: ForwardBody) {}

  /** The model as the client named it. */
  get model(): unknown {
    return this.body.value.model;
  }
}

/** What a request asks for, within the bounds of its model. */
function optionsOf(
  { streams, outputBound }: ForwardEndpoint,
  { request, model }: { request: GoverningMembers; model: ModelConfig },
): Pick<ForwardRequest, "stream" | "choices" | "outputTokensMax"> {
  const bound = outputBound === "max_output_tokens"
    ? request.max_output_tokens
    : request.max_tokens;
  return {
    stream: streams && request.stream === true,
    choices: request.n ?? 1,
    outputTokensMax: bound === undefined
      ? null
      : Math.min(bound, longestOf(model)),
  };
}

const longestOf = (
  { output_tokens = Infinity, context_tokens = Infinity }: ModelConfig,
): number => Math.min(output_tokens, context_tokens);

/** What a request costs at least, and the vectors that must answer it. */
function sizeOf(
  name: ForwardName,
  { value, text }: ForwardBody,
): Pick<ForwardRequest, "promptTokens" | "vectors"> {
  // vLLM embeds `messages`, too.
  if (name !== "embeddings" || !Object.hasOwn(value, "input")) {
    return { promptTokens: bodyTokens(text), vectors: null };
  }
  const { count, tokens } = inputsIn(value.input);
  return { promptTokens: Math.max(1, tokens), vectors: count };
}

/** How many prompts a body has; each of them gets as many answers as are asked for. */
const promptsIn = (name: ForwardName, { value }: ForwardBody): number =>
  name === "completions" ? inputsIn(value.prompt).count ?? 1 : 1;

function estimateOf(
  { outputBound }: ForwardEndpoint,
  request: ForwardRequest,
  catalog: Catalog,
): Estimate {
  const { promptTokens, choices, outputTokensMax, vectors } = request;
  const model: ModelLengths = catalog.get(request.model) ?? {};
  if (outputBound !== null) {
    const size = { promptTokens, choices, outputTokensMax };
    return estimateGeneration(size, model);
  }
  // A model that makes no tokens reserves those of the input.
  const { context_tokens: contextTokens = TOKEN_LIMITS.contextTokensMax } =
    model;
  return {
    promptTokens,
    totalTokens: promptTokens,
    bounds: {
      promptTokensMax: Math.max(promptTokens, contextTokens * (vectors ?? 1)),
      completionTokensMax: 0,
    },
    units: null,
  };
}
