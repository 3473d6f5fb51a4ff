/** Addresses in forwarded requests that their model server would fetch. */
import type { ForwardBody } from "@gateway/shared/forward/body";
import type { ForwardName } from "@gateway/shared/forward/endpoints";
import type { ModelConfig } from "@gateway/shared/models/catalog";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { mustNotPass } from "../requests/body/addresses.ts";
import { mustNotFetch } from "../requests/body/parse_request.ts";

/**
 * Parts of requests in which a server may be told to fetch something. Absent: any part.
 */
const FETCHING: { readonly [name in ForwardName]?: readonly string[] } = {
  messages: ["messages", "tools", "mcp_servers", "system"],
  count_tokens: ["messages", "tools", "mcp_servers", "system"],
  responses: ["input", "tools", "prompt"],
  input_tokens: ["input", "tools", "prompt"],
  compact: ["input", "tools", "prompt"],
};
/** Members that hold an address to fetch, or an object with its `url`. */
const ADDRESS_MEMBER = /^(image|audio|video|file|server)_url$/;
/**
 * A body without any of these names has no such member, however it is written: escapes
 * of ASCII begin with `\u00`.
 */
const MAY_HAVE_ADDRESS = /(?:_url|"url)"|\\u00/;

/**
 * Members whose content a model reads, and no server fetches: arguments, schemas, where
 * something was found.
 */
const SPOKEN = new Set([
  "action",
  "annotations",
  "arguments",
  "citations",
  "input",
  "input_examples",
  "input_schema",
  "parameters",
  "text",
]);

/** Says which addresses may pass. */
type Rules = Pick<ModelConfig, "fetches_urls">;

/** Throws the 400 of the first address that a server must not fetch. */
export function requireNoAddress(
  name: ForwardName,
  { value, text }: ForwardBody,
  model: ModelConfig,
): void {
  if (!MAY_HAVE_ADDRESS.test(text)) return;
  const where = addressIn(value, name, model);
  if (where !== null) throw mustNotFetch(where, model);
}

/** The path of an address that must not pass, or null. */
function addressIn(
  value: ForwardBody["value"],
  endpoint: ForwardName,
  model: Rules,
): string | null {
  for (const name of FETCHING[endpoint] ?? Object.keys(value)) {
    const member = value[name];
    const isUrl = endpoint === "other" && name === "url";
    const holds = isUrl || ADDRESS_MEMBER.test(name);
    if (holds && isRefused(member, model)) return name;
    const where = addressBelow(member, name, model);
    if (where !== null) return where;
  }
  return null;
}

function addressBelow(
  value: unknown,
  path: string,
  model: Rules,
): string | null {
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const where = addressBelow(value[index], `${path}[${index}]`, model);
      if (where !== null) return where;
    }
    return null;
  }
  if (!isJsonObject(value)) return null;
  for (const [name, member] of Object.entries(value)) {
    if (SPOKEN.has(name)) continue;
    const here = `${path}.${name}`;
    // Anthropic's sources and servers of tools are of the type `url`, and some servers
    // do not ask for the type.
    const isUrl = name === "url" && (value.type ?? "url") === "url";
    const holds = ADDRESS_MEMBER.test(name) || isUrl;
    if (holds && isRefused(member, model)) return here;
    const where = addressBelow(member, here, model);
    if (where !== null) return where;
  }
  return null;
}

/** Whether a member that holds addresses has one that must not pass. */
function isRefused(member: unknown, model: Rules): boolean {
  if (Array.isArray(member)) {
    return member.some((each) => isRefused(each, model));
  }
  const text = isJsonObject(member) ? member.url : member;
  return typeof text === "string" && mustNotPass(text, model);
}
