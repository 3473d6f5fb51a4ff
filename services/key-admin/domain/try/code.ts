import { isJsonObject } from "@gateway/shared/process/error_text";
import type { TryRequest } from "./request.ts";

/** A request as code, for programs that have the key in `OPENAI_API_KEY`. */

/** The fields that OpenAI's packages know, of those that the API reads. */
const KNOWN = new Set([
  ...["model", "messages", "temperature", "top_p", "max_tokens", "seed"],
  ...["max_completion_tokens", "stop", "presence_penalty", "logprobs", "tools"],
  ...["frequency_penalty", "top_logprobs", "tool_choice", "response_format"],
  ...["parallel_tool_calls", "stream", "stream_options"],
]);

/** The languages of {@link codeOf}. */
export const LANGUAGES = ["curl", "TypeScript", "Python"] as const;
type Language = typeof LANGUAGES[number];

/** A program that sends the request and prints the text of the streamed answer; curl prints the stream. `apiUrl` has no trailing slash. */
export function codeOf(
  request: TryRequest,
  apiUrl: string,
): Record<Language, string> {
  const members = Object.entries(request);
  const known = members.filter(([name]) => KNOWN.has(name));
  const others = members.filter(([name]) => !KNOWN.has(name));
  const extra = Object.fromEntries(others);
  const url = JSON.stringify(apiUrl);
  /** The fields as arguments, the others together. */
  const fields = (language: Language, is: string, others: string) =>
    [
      ...known.map(([name, value]) =>
        `${name}${is}${literal(value, language, "  ")}`
      ),
      ...Object.keys(extra).length === 0
        ? []
        : [others + literal(extra, language, "  ")],
    ].map((field) => `  ${field},\n`).join("");
  const body = literal(request, "curl").replaceAll("'", `'\\''`);
  return {
    curl: `curl -N ${apiUrl}/chat/completions \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${body}'`,
    // A spread, because the types of the package lack these fields.
    TypeScript: `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${url} });
const stream = await client.chat.completions.create({
${fields("TypeScript", ": ", "...")}});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`,
    Python: `from openai import OpenAI

client = OpenAI(base_url=${url})
stream = client.chat.completions.create(
${fields("Python", "=", "extra_body=")})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
  };
}

/** Shorter ones stay on one line. */
const LINE_CHARS_MAX = 56;

/** A JSON value in a language, which differ in a few words only. */
function literal(value: unknown, language: Language, margin = ""): string {
  const inner = `${margin}  `;
  const block = (open: string, items: string[], close: string) => {
    const line = `${open}${items.join(", ")}${close}`;
    return line.length <= LINE_CHARS_MAX
      ? line
      : `${open}\n${inner}${items.join(`,\n${inner}`)}\n${margin}${close}`;
  };
  if (Array.isArray(value)) {
    const items = value.map((item) => literal(item, language, inner));
    return block("[", items, "]");
  }
  if (isJsonObject(value)) {
    const items = Object.entries(value).map(([name, item]) =>
      `${JSON.stringify(name)}: ${literal(item, language, inner)}`
    );
    return block("{", items, "}");
  }
  const text = JSON.stringify(value);
  return language === "Python" ? PYTHON[text] ?? text : text;
}

const PYTHON: Readonly<Record<string, string>> = {
  ...{ null: "None", true: "True", false: "False" },
};
