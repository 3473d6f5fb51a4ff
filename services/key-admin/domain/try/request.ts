import { isJsonObject } from "@gateway/shared/process/error_text";

/** A value for each field of the form of the page "Try it". All are texts. */
export const tryFields = <T>(valueOf: (name: string) => T) => ({
  model: valueOf("model"),
  system: valueOf("system"),
  message: valueOf("message"),
  temperature: valueOf("temperature"),
  top_p: valueOf("top_p"),
  max_tokens: valueOf("max_tokens"),
  seed: valueOf("seed"),
  /** `on`, `off` or empty. */
  thinking: valueOf("thinking"),
  tools: valueOf("tools"),
  schema: valueOf("schema"),
  /** The messages before, as JSON. */
  history: valueOf("history"),
  /** Any other fields of the request, as JSON. */
  more: valueOf("more"),
});
export type TryValues = ReturnType<typeof tryFields<string>>;
export type TryField = keyof TryValues;

/** A request to the API as JSON. */
export type TryRequest = Readonly<Record<string, unknown>>;

const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"] as const;
/** Fields that the page itself sets, or of which it shows one only. */
const OWN = ["model", "messages", "stream", "stream_options", "n"];

/**
 * The request of a filled-in form, and its mistakes by field. Only what would be no
 * request is a mistake here: the API itself checks the rest, as it does for everybody.
 */
export function tryRequest(
  values: TryValues,
): { request: TryRequest; errors: ReadonlyMap<string, string> } {
  const errors = new Map<string, string>();
  const json = (name: TryField): unknown => {
    try {
      return values[name].trim() === "" ? undefined : JSON.parse(values[name]);
    } catch (error) {
      const reason = String(error).replace(/^\w+: | is not valid JSON$/g, "");
      errors.set(name, `This is not valid JSON. ${reason}`);
      return undefined;
    }
  };
  const list = (name: TryField): unknown[] => {
    const value = json(name);
    if (Array.isArray(value)) return value;
    if (value !== undefined) errors.set(name, "This must be a JSON array");
    return [];
  };
  const object = (name: TryField) => {
    const value = json(name);
    if (isJsonObject(value)) return value;
    if (value !== undefined) errors.set(name, "This must be a JSON object");
    return {};
  };
  const says = (role: "system" | "user", content: string) =>
    content.trim() === "" ? [] : [{ role, content }];
  const numbers = NUMBERS.filter((name) => values[name].trim() !== "")
    .map((name) => [name, Number(values[name])] as const);
  for (const [name, number] of numbers) {
    if (!Number.isFinite(number)) errors.set(name, "This is not a number");
  }
  const history = list("history");
  const tools = list("tools");
  const schema = object("schema");
  const more = object("more");
  const own = OWN.find((name) => Object.hasOwn(more, name));
  if (own !== undefined) {
    errors.set("more", `The page sets '${own}' itself. Leave it out here`);
  }
  if (values.message.trim() === "" && values.history.trim() === "") {
    errors.set("message", "Write a message");
  }
  const request = {
    model: values.model,
    messages: [
      ...says("system", values.system),
      ...history,
      ...says("user", values.message),
    ],
    ...Object.fromEntries(numbers),
    ...values.thinking !== "" && { enable_thinking: values.thinking === "on" },
    ...tools.length > 0 && { tools },
    ...Object.keys(schema).length > 0 && {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema, strict: true },
      },
    },
    ...more,
  };
  return { request, errors };
}

/** The same request for a streamed answer that ends with its number of tokens. */
export const streamed = (request: TryRequest): TryRequest => ({
  ...request,
  stream: true,
  stream_options: { include_usage: true },
});
