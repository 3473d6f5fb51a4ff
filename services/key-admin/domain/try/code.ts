import { isJsonObject } from "@gateway/shared/process/error_text";
import { speechFormat } from "@gateway/shared/openai/media";
import { TRY_KINDS, type TryKind, type TryRequest } from "./request.ts";

/** A request as code, for programs that have the key in `OPENAI_API_KEY`. */

/** The languages of {@link codeOf}. */
export const LANGUAGES = ["curl", "TypeScript", "Python"] as const;
type Language = typeof LANGUAGES[number];

/** What to do with the answers. `CALL` is the request, `VIDEO` one about its video, `CLIENT` makes a client, `FIELDS` are the arguments. */
const PROGRAMS: Record<TryKind, Record<Language, string>> = {
  chat: {
    curl: "CALL",
    TypeScript: `CLIENT
const stream = await client.chat.completions.create(FIELDS);
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`,
    Python: `CLIENT
stream = client.chat.completions.create(FIELDS)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
  },
  image: {
    curl: `CALL |
  jq -r '.data[0].b64_json' | base64 --decode >image-1.png`,
    TypeScript: `import { writeFile } from "node:fs/promises";
CLIENT
const { data = [] } = await client.images.generate(FIELDS);
for (const [index, { b64_json = "" }] of data.entries()) {
  await writeFile(\`image-\${index + 1}.png\`, b64_json, "base64");
}`,
    Python: `import base64
CLIENT
answer = client.images.generate(FIELDS)
for index, image in enumerate(answer.data or [], 1):
    with open(f"image-{index}.png", "wb") as file:
        file.write(base64.b64decode(image.b64_json or ""))`,
  },
  speech: {
    curl: `CALL \\
  --output speech.mp3`,
    TypeScript: `import { writeFile } from "node:fs/promises";
CLIENT
const response = await client.audio.speech.create(FIELDS);
await writeFile("speech.mp3", new Uint8Array(await response.arrayBuffer()));`,
    Python: `CLIENT
speech = client.audio.speech.with_streaming_response
with speech.create(FIELDS) as response:
    response.stream_to_file("speech.mp3")`,
  },
  transcription: {
    curl: "CALL",
    TypeScript: `import { createReadStream } from "node:fs";
CLIENT
const { text } = await client.audio.transcriptions.create(FIELDS);
console.log(text);`,
    Python: `CLIENT
answer = client.audio.transcriptions.create(FIELDS)
print(answer.text)`,
  },
  video: {
    curl: `id=$(CALL |
  jq -r .id)
until VIDEO AUTHORIZATION |
  jq -e '.status | test("completed|failed")'; do sleep 2; done
VIDEO/content AUTHORIZATION \\
  --output video.mp4`,
    TypeScript: `import { writeFile } from "node:fs/promises";
CLIENT
let video = await client.videos.create(FIELDS);
while (video.status === "queued" || video.status === "in_progress") {
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  video = await client.videos.retrieve(video.id);
}
if (video.status === "failed") throw new Error(video.error?.message);
const response = await client.videos.downloadContent(video.id);
await writeFile("video.mp4", new Uint8Array(await response.arrayBuffer()));`,
    Python: `import time
CLIENT
video = client.videos.create(FIELDS)
while video.status in ("queued", "in_progress"):
    time.sleep(2)
    video = client.videos.retrieve(video.id)
if video.status == "failed":
    raise SystemExit(video.error and video.error.message)
client.videos.download_content(video.id).write_to_file("video.mp4")`,
  },
};

/** The chat fields of the API that OpenAI's packages know. They know all fields of other kinds. */
const KNOWN = new Set([
  ...["model", "messages", "temperature", "top_p", "max_tokens", "seed"],
  ...["max_completion_tokens", "stop", "presence_penalty", "logprobs", "tools"],
  ...["frequency_penalty", "top_logprobs", "tool_choice", "response_format"],
  ...["parallel_tool_calls", "stream", "stream_options"],
]);

/** A program that sends the request and prints the text of the answer, or writes its images, audio or video to files. `apiUrl` has no trailing slash. */
export function codeOf(
  kind: TryKind,
  request: TryRequest,
  apiUrl: string,
): Record<Language, string> {
  const members = Object.entries(request);
  const isKnown = ([name]: [string, unknown]) =>
    kind !== "chat" || KNOWN.has(name);
  const extra = members.filter((member) => !isKnown(member));
  const url = JSON.stringify(apiUrl);
  /** The fields as arguments, those that the packages lack together. */
  const fields = (language: Language, is: string, others: string) =>
    [
      ...members.filter(isKnown).map(([name, value]) =>
        name + is + (name === "file"
          ? opened(value, language)
          : literal(value, language, "  "))
      ),
      ...extra.length === 0
        ? []
        : [others + literal(Object.fromEntries(extra), language, "  ")],
    ].map((field) => `  ${field},\n`).join("");
  const format = String(request.response_format);
  const speech = speechFormat.catch("mp3").parse(format);
  const filled = (language: Language, parts: Record<string, string>) =>
    PROGRAMS[kind][language].replace("speech.mp3", `speech.${speech}`)
      .replace(
        /CALL|VIDEO|AUTHORIZATION|CLIENT|FIELDS/g,
        (name) => parts[name] ?? "",
      );
  return {
    curl: filled("curl", {
      CALL: curlOf(kind, request, apiUrl),
      VIDEO: `curl ${apiUrl}${TRY_KINDS.video.path}/$id`,
      AUTHORIZATION,
    }),
    TypeScript: filled("TypeScript", {
      CLIENT: `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${url} });`,
      // A spread, because the types of the package lack these fields.
      FIELDS: `{\n${fields("TypeScript", ": ", "...")}}`,
    }),
    Python: filled("Python", {
      CLIENT: `from openai import OpenAI

client = OpenAI(base_url=${url})`,
      FIELDS: `\n${fields("Python", "=", "extra_body=")}`,
    }),
  };
}

function curlOf(kind: TryKind, request: TryRequest, apiUrl: string): string {
  const { path, isUpload } = TRY_KINDS[kind];
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
  return [
    `curl ${request.stream ? "-N " : ""}${apiUrl}${path}`,
    AUTHORIZATION,
    ...sends,
  ].join(" \\\n  ");
}

const AUTHORIZATION = '-H "Authorization: Bearer $OPENAI_API_KEY"';

/** For a shell. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

const opened = (name: unknown, language: Language) =>
  language === "Python"
    ? `open(${literal(name, language)}, "rb")`
    : `createReadStream(${literal(name, language)})`;

/** Shorter values stay on one line. */
const LINE_CHARS_MAX = 56;

/** A JSON value in a language; the languages differ only in a few words. */
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
