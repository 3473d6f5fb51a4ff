import { speechFormat } from "@gateway/shared/openai/media";
import { TRY_LIMITS } from "../../domain/try/key.ts";
import type { TryKind } from "../../domain/try/request.ts";

/** The fields of the page "Try it" below the model: their names, labels and inputs. */

export type TryField = readonly [name: string, label: string, input: object];
/** Fields in a row. A group with a title is folded until it is used. */
type Group = readonly [title: string, ...fields: readonly TryField[]];

/** The API checks the bounds of numbers, as for any caller. */
const NUMBER = { type: "number", step: "any", placeholder: "Default" };
const json = (placeholder: string) => ({
  ...{ rows: 5, spellcheck: false, placeholder },
});
const THINKING = [["", "Default"], ["on", "On"], ["off", "Off"]];
const FORMATS = speechFormat.options.map((name) => [name, name]);
const RECORDING = {
  ...{ type: "file", accept: "audio/*,video/*" },
  help: `At most ${TRY_LIMITS.heldBytes / 2 ** 20} MiB.`,
};
const VIDEO_HELP = "Stop only ends the wait: the video is still made.";

export const TRY_FIELDS: Readonly<Record<TryKind, readonly Group[]>> = {
  chat: [
    ["", ["system", "System prompt", { rows: 2 }]],
    ["", ["message", "Message", { rows: 4 }]],
    [
      "Parameters",
      ["temperature", "Temperature", NUMBER],
      ["top_p", "Top p", NUMBER],
      ["max_tokens", "Max tokens", NUMBER],
      ["seed", "Seed", NUMBER],
      ["thinking", "Thinking", { options: THINKING }],
    ],
    ["Tools", [
      "tools",
      "Tools (JSON)",
      json(`[{"type": "function", "function": {"name": "get_weather",
"parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`),
    ]],
    ["Structured answer", [
      "schema",
      "JSON schema of the answer",
      json(`{"type": "object", "properties": {"city": {"type": "string"}},
"required": ["city"], "additionalProperties": false}`),
    ]],
    ["Earlier messages", [
      "history",
      "Earlier messages (JSON)",
      json(`[{"role": "user", "content": "Hello"},
{"role": "assistant", "content": "Hi!"}]`),
    ]],
    ["Other fields", [
      "more",
      "Other fields of the request (JSON)",
      json(`{"stop": ["END"], "tool_choice": "required"}`),
    ]],
  ],
  image: [
    ["", ["prompt", "Prompt", { rows: 4 }]],
    [
      "",
      ["size", "Size", { placeholder: "1024x1024" }],
      ["n", "Images", NUMBER],
    ],
  ],
  speech: [
    ["", ["input", "Text", { rows: 4 }]],
    [
      "",
      ["voice", "Voice", {}],
      ["response_format", "Format", { options: FORMATS }],
      ["speed", "Speed", NUMBER],
    ],
  ],
  transcription: [
    ["", ["file", "Recording", RECORDING]],
    ["", ["language", "Language", { placeholder: "Such as en" }]],
  ],
  video: [
    ["", ["prompt", "Prompt", { rows: 4, help: VIDEO_HELP }]],
    [
      "",
      ["seconds", "Seconds", { placeholder: "4" }],
      ["size", "Size", { placeholder: "1280x720" }],
    ],
  ],
};

/** The names of the fields of a form, each with a value. */
export const tryFields = <T>(
  kind: TryKind,
  valueOf: (name: string) => T,
): Record<string, T> => {
  const fields = TRY_FIELDS[kind].flatMap(([, ...fields]) => fields);
  const names = ["model", ...fields.map(([name]) => name)];
  return Object.fromEntries(names.map((name) => [name, valueOf(name)]));
};
