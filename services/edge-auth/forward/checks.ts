/** What a forwarded request must not ask for, and what its model must have for it. */
import type { ForwardBody } from "@gateway/shared/forward/body";
import {
  forwardEndpoint,
  type ForwardName,
} from "@gateway/shared/forward/endpoints";
import type { ForwardRequest } from "@gateway/shared/forward/request";
import type { ModelConfig } from "@gateway/shared/models/catalog";
import type { ServerAbility } from "@gateway/shared/models/dialects";
import { fieldError } from "@gateway/shared/openai/error";
import {
  completionRequest,
  embeddingRequest,
  messageRequest,
  rerankRequest,
  responseRequest,
} from "@gateway/shared/openai/forwarded";
import { findRefusedField } from "@gateway/shared/openai/refused_fields";
import { requireAllowedFields } from "../requests/body/parse_request.ts";
import { requireNoAddress } from "./addresses.ts";
import { requireAcceptedBlocks } from "./media_blocks.ts";

/** Throws a 400 that says what to set, if no server of the model has the endpoint. */
export function requireSpeaker(
  ability: ServerAbility,
  { id, kind, backends }: ModelConfig,
): void {
  // Models of other kinds are of no use to anybody whose server lacks their endpoint.
  if (kind !== "chat") return;
  if (backends.some(({ dialect }) => dialect.speaks.includes(ability))) return;
  const { isFree } = ability === "chat" ? NO_COUNT : forwardEndpoint(ability);
  const names = new Set(backends.map(({ dialect_name: name }) => `'${name}'`));
  throw fieldError(
    // Agents count by themselves after 404, and after no other status.
    isFree ? "not_found" : "unsupported_value",
    "model",
    `No server of the model '${id}' is known to have ${pathOf(ability)} ` +
      `(dialect ${[...names].join(", ")}). If one has it, the operator adds ` +
      `'${ability}' to the backend's 'speaks'.`,
  );
}

const NO_COUNT = { isFree: false };

const pathOf = (ability: ServerAbility): string =>
  ability === "chat" ? "/v1/chat/completions" : forwardEndpoint(ability).path;

/** Throws a 400 that says what to set, if no server of the model has a path. */
export function requirePath(path: string, { id, backends }: ModelConfig): void {
  if (backends.some((each) => each.forward_paths.includes(path))) return;
  throw fieldError(
    "unsupported_value",
    "model",
    `No server of the model '${id}' is known to have ${path}. If one has it, ` +
      `the operator adds '${path}' to the backend's 'forward_paths'.`,
  );
}

/** The members that the description of the API names, for models closed to others. */
const KNOWN_FIELDS: Readonly<Record<ForwardName, Fields>> = {
  messages: namesIn(messageRequest),
  count_tokens: namesIn(messageRequest),
  responses: namesIn(responseRequest),
  input_tokens: namesIn(responseRequest),
  compact: namesIn(responseRequest),
  completions: namesIn(completionRequest),
  embeddings: namesIn(embeddingRequest),
  rerank: namesIn(rerankRequest),
  // Nobody but the operator who named the path knows its fields.
  other: { has: () => true },
};

type Fields = Pick<ReadonlySet<string>, "has">;

function namesIn({ shape }: { shape: object }): ReadonlySet<string> {
  return new Set(Object.keys(shape));
}

/** Members by which a server is to continue what it has kept. */
const STATES = ["previous_response_id", "conversation", "background"];

/** Throws the 400 of a member that must not pass. */
export function requireAllowed(
  name: ForwardName,
  body: ForwardBody,
  { model, outputTokensMax }:
    & Pick<ForwardRequest, "outputTokensMax">
    & { model: ModelConfig },
): void {
  const { value } = body;
  const maxTokens = outputTokensMax ?? undefined;
  const field = findRefusedField(value, { maxTokens });
  if (field !== null) {
    throw fieldError("unsupported_parameter", field.param, field.message);
  }
  requireAllowedFields(value, KNOWN_FIELDS[name], model);
  if (name === "responses" || name === "compact") requireNoState(value, model);
  requireAcceptedBlocks({ value }, model);
  requireNoAddress(name, body, model);
}

function requireNoState(value: ForwardBody["value"], model: ModelConfig): void {
  if (model.stateful) return;
  const member = STATES.find((each) => (value[each] ?? false) !== false);
  if (member === undefined) return;
  throw fieldError(
    "unsupported_value",
    member,
    `Unsupported '${member}': nothing is stored here, so send the whole ` +
      "conversation. If the only server of the model " +
      `'${model.id}' stores responses, the operator sets the model's 'stateful'.`,
  );
}
