/** A request as code, for programs that have the key in `OPENAI_API_KEY`. */
import { speechFormat } from "@gateway/shared/openai/media";
import { isChatForm, type TryRequest } from "./chat_forms.ts";
import { TRY_KINDS } from "./kinds.ts";
import type { TryEndpoint } from "./request.ts";

/** The languages, in the order of their tabs. */
export const LANGUAGES = ["curl", "TypeScript", "Python"] as const;
type Language = typeof LANGUAGES[number];

/**
 * Programs that send a request and use its answer. `CALL` stands for the request,
 * `VIDEO` for one about its video, `FIELDS` for the arguments.
 */
const PROGRAMS: Record<TryEndpoint, Record<Language, string>> = {
  chat: {
    curl: "CALL",
    TypeScript: `const stream = await client.chat.completions.create(FIELDS);
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`,
    Python: `stream = client.chat.completions.create(FIELDS)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
  },
  responses: {
    curl: "CALL",
    TypeScript: `const stream = await client.responses.create(FIELDS);
for await (const event of stream) {
  if (event.type === "response.output_text.delta") {
    process.stdout.write(event.delta);
  }
}`,
    Python: `stream = client.responses.create(FIELDS)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`,
  },
  messages: {
    curl: "CALL",
    TypeScript: `const stream = await client.messages.create(FIELDS);
for await (const event of stream) {
  if (event.type !== "content_block_delta") continue;
  if (event.delta.type === "text_delta") process.stdout.write(event.delta.text);
}`,
    Python: `stream = client.messages.create(FIELDS)
for event in stream:
    if event.type == "content_block_delta" and event.delta.type == "text_delta":
        print(event.delta.text, end="", flush=True)`,
  },
  embedding: {
    curl: "CALL",
    TypeScript: `const { data } = await client.embeddings.create(FIELDS);
for (const { embedding } of data) console.log(embedding);`,
    Python: `for item in client.embeddings.create(FIELDS).data:
    print(item.embedding)`,
  },
  image: {
    curl: `CALL |
  jq -r '.data[0].b64_json' | base64 --decode >image-1.png`,
    TypeScript: `import { writeFile } from "node:fs/promises";
const { data = [] } = await client.images.generate(FIELDS);
for (const [index, { b64_json = "" }] of data.entries()) {
  await writeFile(\`image-\${index + 1}.png\`, b64_json, "base64");
}`,
    Python: `import base64
answer = client.images.generate(FIELDS)
for index, image in enumerate(answer.data or [], 1):
    with open(f"image-{index}.png", "wb") as file:
        file.write(base64.b64decode(image.b64_json or ""))`,
  },
  speech: {
    curl: `CALL \\
  --output speech.mp3`,
    TypeScript: `import { writeFile } from "node:fs/promises";
const response = await client.audio.speech.create(FIELDS);
await writeFile("speech.mp3", new Uint8Array(await response.arrayBuffer()));`,
    Python: `client.audio.speech.create(FIELDS).write_to_file("speech.mp3")`,
  },
  transcription: {
    curl: "CALL",
    TypeScript: `import { createReadStream } from "node:fs";
const { text } = await client.audio.transcriptions.create(FIELDS);
console.log(text);`,
    Python: `print(client.audio.transcriptions.create(FIELDS).text)`,
  },
  video: {
    curl: `id=$(CALL |
  jq -r .id)
until VIDEO AUTHORIZATION |
  jq -e '.status | test("completed|failed")'; do sleep 2; done
VIDEO/content AUTHORIZATION \\
  --output video.mp4`,
    TypeScript: `import { writeFile } from "node:fs/promises";
let video = await client.videos.create(FIELDS);
while (video.status === "queued" || video.status === "in_progress") {
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  video = await client.videos.retrieve(video.id);
}
if (video.status === "failed") throw new Error(video.error?.message);
const response = await client.videos.downloadContent(video.id);
await writeFile("video.mp4", new Uint8Array(await response.arrayBuffer()));`,
    Python: `video = client.videos.create_and_poll(FIELDS)
if video.status == "failed":
    raise SystemExit(video.error and video.error.message)
client.videos.download_content(video.id).write_to_file("video.mp4")`,
  },
};

/**
 * The chat fields of the API that OpenAI's packages know. They know all fields of other
 * kinds.
 */
const CHAT_MEMBERS = new Set([
  "model",
  "messages",
  "temperature",
  "top_p",
  "max_tokens",
  "seed",
  "max_completion_tokens",
  "stop",
  "presence_penalty",
  "logprobs",
  "tools",
  "frequency_penalty",
  "top_logprobs",
  "tool_choice",
  "response_format",
  "parallel_tool_calls",
  "stream",
  "stream_options",
]);

/**
 * A program that sends the request and prints the text of the answer, or writes its
 * images, audio or video to files. `apiUrl` has no trailing slash.
 */
export function codeOf(
  endpoint: TryEndpoint,
  request: TryRequest,
  apiUrl: string,
) {
  const isKnown = (name: string) =>
    endpoint !== "chat" || CHAT_MEMBERS.has(name);
  const members = Object.entries(request);
  const extra = members.filter(([name]) => !isKnown(name));
  /** The fields as arguments; those that the packages lack are grouped. */
  const fields = (language: Language, is: string, others: string) =>
    [
      ...members.filter(([name]) => isKnown(name)).map(([name, value]) =>
        name + is + literal(value, language, name === "file")
      ),
      ...extra.length === 0
        ? []
        : [others + literal(Object.fromEntries(extra), language)],
    ].map((field) => `  ${field.replaceAll("\n", "\n  ")},\n`).join("");
  const clients = clientsOf(endpoint, apiUrl);
  const parts: Readonly<Record<string, string>> = {
    CALL: curlOf(endpoint, request, apiUrl),
    VIDEO: `curl ${apiUrl}${TRY_KINDS.video.path}/$id`,
    AUTHORIZATION,
  };
  const format = String(request.response_format);
  const speech = speechFormat.catch("mp3").parse(format);
  const program = (language: Language) =>
    PROGRAMS[endpoint][language].replace("speech.mp3", `speech.${speech}`);
  /** With the client after the first imports. */
  const filled = (language: Language, client: string, fields: string) =>
    program(language).replace("FIELDS", () => fields)
      .replace(/^(?!import)/m, () => `${client}\n`);
  return {
    curl: program("curl")
      .replace(/CALL|VIDEO|AUTHORIZATION/g, (name) => parts[name] ?? ""),
    TypeScript: filled(
      "TypeScript",
      clients.TypeScript,
      // A spread, because the types of the package lack these fields.
      `{\n${fields("TypeScript", ": ", "...")}}`,
    ),
    Python: filled(
      "Python",
      clients.Python,
      `\n${fields("Python", "=", "extra_body=")}`,
    ),
  };
}

/** The beginnings of programs. Anthropic's packages add `/v1` to the base URL. */
function clientsOf(endpoint: TryEndpoint, apiUrl: string) {
  const url = JSON.stringify(apiUrl);
  if (endpoint !== "messages") {
    return {
      TypeScript:
        `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: ${url} });`,
      Python: `from openai import OpenAI\n\nclient = OpenAI(base_url=${url})`,
    };
  }
  const base = JSON.stringify(apiUrl.replace(/\/v1$/, ""));
  return {
    TypeScript: `import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: ${base},
  authToken: process.env.OPENAI_API_KEY ?? null,
});`,
    Python: `import os
from anthropic import Anthropic

client = Anthropic(
  base_url=${base}, auth_token=os.environ["OPENAI_API_KEY"]
)`,
  };
}

function curlOf(
  endpoint: TryEndpoint,
  request: TryRequest,
  apiUrl: string,
): string {
  const { path, isUpload = false } = isChatForm(endpoint)
    ? { path: `/${endpoint}` }
    : TRY_KINDS[endpoint];
  const sends = isUpload
    ? Object.entries(request).map(([name, value]) =>
      name === "file"
        ? `-F ${quoted(`file=@${JSON.stringify(value)}`)}`
        : `--form-string ${quoted(`${name}=${value}`)}`
    )
    : [
      '-H "Content-Type: application/json"',
      `-d ${quoted(literal(request, "curl"))}`,
    ];
  const call = `curl ${request.stream ? "-N " : ""}${apiUrl}${path}`;
  return [call, AUTHORIZATION, ...sends].join(" \\\n  ");
}

const AUTHORIZATION = '-H "Authorization: Bearer $OPENAI_API_KEY"';

/** For a shell. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Lists and objects of at most this length stay on one line. */
const LINE_CHARS_MAX = 56;

/** A JSON value in a language, or the opened file of this name. */
function literal(value: unknown, language: Language, isFile = false): string {
  const isPython = language === "Python";
  const json = JSON.stringify(value);
  if (isFile) {
    return isPython ? `open(${json}, "rb")` : `createReadStream(${json})`;
  }
  if (typeof value !== "object" || value === null) {
    return isPython ? PYTHON[json] ?? json : json;
  }
  const isList = Array.isArray(value);
  const items = Object.entries(value).map(([name, item]) =>
    (isList ? "" : `${JSON.stringify(name)}: `) + literal(item, language)
  );
  const [open, close] = isList ? "[]" : "{}";
  const line = open + items.join(", ") + close;
  if (line.length <= LINE_CHARS_MAX && !line.includes("\n")) return line;
  const lines = items.join(",\n").replaceAll("\n", "\n  ");
  return `${open}\n  ${lines}\n${close}`;
}

const PYTHON: Readonly<Record<string, string>> = {
  null: "None",
  true: "True",
  false: "False",
};
