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
import { isJsonObject } from "@gateway/shared/process/error_text";
import {
  mustNotFetch,
  requireAllowedFields,
} from "../requests/parse_request.ts";
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
  { value, text }: ForwardBody,
  { model, outputTokensMax }:
    & Pick<ForwardRequest, "outputTokensMax">
    & { model: ModelConfig },
): void {
  const maxTokens = outputTokensMax ?? undefined;
  const field = findRefusedField(value, { maxTokens });
  if (field !== null) {
    throw fieldError("unsupported_parameter", field.param, field.message);
  }
  requireAllowedFields(value, KNOWN_FIELDS[name], model);
  if (name === "responses" || name === "compact") requireNoState(value, model);
  requireAcceptedBlocks({ value }, model);
  if (model.fetches_urls || !/"https?:/i.test(text)) return;
  const where = addressIn(value, name);
  if (where !== null) throw mustNotFetch(where, model);
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

/** Parts of requests in which a server may be told to fetch something. */
const FETCHING = ["messages", "input", "tools", "mcp_servers", "system"];
const ADDRESS = /^https?:/i;
/** Members that hold an address to fetch, or an object with its `url`. */
const ADDRESS_MEMBER = /^(image|audio|video|file|server)_url$/;

/** The path of an address that a server would fetch, or null. */
function addressIn(
  value: ForwardBody["value"],
  name: ForwardName,
): string | null {
  if (name === "embeddings" || name === "rerank") return null;
  for (const member of name === "other" ? Object.keys(value) : FETCHING) {
    const where = addressBelow(value[member], member);
    if (where !== null) return where;
  }
  return null;
}

function addressBelow(value: unknown, path: string): string | null {
  if (Array.isArray(value)) {
    for (const [index, each] of value.entries()) {
      const where = addressBelow(each, `${path}[${index}]`);
      if (where !== null) return where;
    }
    return null;
  }
  if (!isJsonObject(value)) return null;
  for (const [name, member] of Object.entries(value)) {
    if (SPOKEN.has(name)) continue;
    const here = `${path}.${name}`;
    // Anthropic's sources and servers of tools are of the type `url`.
    const isUrl = name === "url" && value.type === "url";
    const holds = ADDRESS_MEMBER.test(name) || isUrl;
    const inner = holds && isJsonObject(member) ? member.url : member;
    if (holds && typeof inner === "string" && ADDRESS.test(inner)) return here;
    const where = addressBelow(member, here);
    if (where !== null) return where;
  }
  return null;
}

/** Members whose content a model reads, and no server fetches: arguments, schemas. */
const SPOKEN = new Set([
  "arguments",
  "input",
  "input_schema",
  "parameters",
  "text",
]);
