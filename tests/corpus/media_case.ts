/**
 * The format of a case about images, audio and videos. It has the sections of
 * `case_file.ts`, and:
 *
 * - `path`: below `/v1`, such as `/audio/speech`. It decides the kind of the model.
 * - `request`: the body, as JSON, or instead `form`: a list of its parts, each a name
 *   with a text or with a file: `{"name", "type", "bytes"}`, the bytes as Latin-1.
 * - `forwarded`: of JSON that the server must get, members; of a form, all its parts in
 *   their order.
 * - `answer`: the status, and members of the JSON; or `events`, a list with members of
 *   each; or `text` of any other body. `type` is the media type.
 */
import { Buffer } from "node:buffer";
import { CaseFile } from "./case_file.ts";

/**
 * A file of a form; `bytes` are its content in Latin-1, absent where that is not said.
 */
export interface FormFile {
  name: string;
  type: string;
  bytes?: string;
}

/** A part of a form. */
export type FormPart = [name: string, value: string | FormFile];

/** A case, parsed. */
export interface MediaCase {
  title: string;
  /** Below `/v1`. */
  path: string;
  model: { [member: string]: unknown };
  /** JSON, or the parts of a form. */
  request: { [member: string]: unknown } | FormPart[];
  forwarded: { [member: string]: unknown } | FormPart[];
  /** The bytes of the server's answer; null if no request may reach it. */
  response: Uint8Array | null;
  status: number;
  answer: unknown;
}

/** Parses a file. Throws a `SyntaxError` that names what is wrong. */
export function parseMediaCase(text: string): MediaCase {
  const file = new CaseFile(text);
  return {
    title: file.title,
    path: file.text("path").trim(),
    model: file.json("model"),
    request: file.json(file.has("form") ? "form" : "request"),
    forwarded: file.json("forwarded"),
    response: file.response(),
    ...file.answer(),
  };
}

/**
 * The body of a form, and its content type. Written by hand: `FormData` gives every
 * file a name and a type.
 */
export function encodeParts(
  parts: readonly FormPart[],
): { body: Uint8Array<ArrayBuffer>; type: string } {
  const boundary = "----c0rpus";
  const texts = parts.map(([name, value]) => {
    const start = `--${boundary}\r\ncontent-disposition: form-data; ` +
      `name="${name}"`;
    if (typeof value === "string") {
      return `${start}\r\n\r\n${Buffer.from(value).toString("latin1")}\r\n`;
    }
    const { name: fileName, type, bytes = "" } = value;
    const typed = type === "" ? "" : `\r\ncontent-type: ${type}`;
    return `${start}; filename="${fileName}"${typed}\r\n\r\n${bytes}\r\n`;
  });
  const text = `${texts.join("")}--${boundary}--\r\n`;
  return {
    body: new Uint8Array(Buffer.from(text, "latin1")),
    type: `multipart/form-data; boundary=${boundary}`,
  };
}

/** The parts of a form that a server got. */
export async function readParts(
  body: string,
  type: string,
): Promise<FormPart[]> {
  const form = await new Response(body, { headers: { "content-type": type } })
    .formData();
  return [...form].map(([name, value]): FormPart =>
    typeof value === "string"
      ? [name, value]
      : [name, { name: value.name, type: value.type }]
  );
}

/** What a client makes of an answer. */
export async function readAnswer(response: Response): Promise<unknown> {
  const type = response.headers.get("content-type") ?? "";
  const text = Buffer.from(await response.arrayBuffer()).toString();
  if (type.startsWith("application/json")) {
    return { ...JSON.parse(text), type };
  }
  if (!type.startsWith("text/event-stream")) {
    return { text: text.trimEnd(), type };
  }
  const events = text.split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line): unknown => JSON.parse(line.slice("data: ".length)));
  return { events, type };
}
