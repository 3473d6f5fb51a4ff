/**
 * The format of a case of the corpus: what a client sends, what a model server answers,
 * and what must reach each of them.
 *
 * A file begins with a sentence that says what is odd, and its source. Then come
 * sections, each with a line `=== <name>` above it:
 *
 * - `model`: members of the model in `models.json`, as JSON. Optional.
 * - `backend`: members of its only backend, as JSON. Optional.
 * - `request`: the body, as JSON. `model` and `messages` are added where they lack.
 * - `forwarded`: members of the body that the server must get, as JSON. Optional.
 * - `response`: what the server sends: a status line, headers, a blank line, and the
 *   body, all byte for byte but the line ends of the head. Absent if it gets nothing.
 *   `<repeat 1000 text>` stands for that many repetitions of a text. A body with a
 *   `content-encoding` is written in plain and compressed by the test.
 * - `answer`: the status, and what the client makes of the body, as JSON: of a stream
 *   the message that an SDK assembles.
 */

import { Buffer } from "node:buffer";
import {
  brotliCompressSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from "node:zlib";

/** A case, parsed. */
export interface CorpusCase {
  /** The first line of the file. */
  title: string;
  model: { [member: string]: unknown };
  backend: { [member: string]: unknown };
  request: { [member: string]: unknown };
  forwarded: unknown;
  /** The bytes of the server's answer; null if no request may reach it. */
  response: Uint8Array | null;
  status: number;
  answer: unknown;
}

const SECTION = /^=== (\w+)\n/m;
const CODING = /^content-encoding: (\w+)$/m;
const CODINGS: { [name: string]: (text: string) => Uint8Array } = {
  gzip: (text) => gzipSync(text),
  deflate: (text) => deflateSync(text),
  br: (text) => brotliCompressSync(text),
  zstd: (text) => zstdCompressSync(text),
};
const REPEAT = /<repeat (\d+) ([^>]*)>/g;

/** The sections of a file. Throws a `SyntaxError` that names what is wrong. */
export class CaseFile {
  /** The first line. */
  readonly title: string;
  readonly #sections = new Map<string, string>();

  constructor(text: string) {
    const [intro = "", ...rest] = text.split(SECTION);
    [this.title = ""] = intro.split("\n");
    for (let at = 0; at < rest.length; at += 2) {
      this.#sections.set(rest[at] ?? "", rest[at + 1] ?? "");
    }
  }

  /** Whether the file has a section. */
  has(name: string): boolean {
    return this.#sections.has(name);
  }

  /** The text of a section, with its repetitions. */
  text(name: string): string {
    const section = this.#sections.get(name);
    if (section === undefined) throw new SyntaxError(`No section '${name}'`);
    return section
      .replace(REPEAT, (_, count, what) => what.repeat(Number(count)));
  }

  /** A section as JSON; an empty object if the file does not have it. */
  json(name: string) {
    return this.has(name) ? JSON.parse(this.text(name)) : {};
  }

  /** The bytes of the server's answer; null without them. */
  response(): Uint8Array | null {
    return this.has("response") ? responseBytes(this.text("response")) : null;
  }

  /** The status, and what the client makes of the body. */
  answer() {
    const [status, ...answer] = this.text("answer").split("\n");
    const body = answer.join("\n").trim();
    return { status: Number(status), answer: JSON.parse(body || "{}") };
  }
}

/** Parses a file. Throws a `SyntaxError` that names what is wrong. */
export function parseCase(text: string): CorpusCase {
  const file = new CaseFile(text);
  if (!file.has("request")) throw new SyntaxError("No section 'request'");
  return {
    title: file.title,
    model: file.json("model"),
    backend: file.json("backend"),
    request: file.json("request"),
    forwarded: file.json("forwarded"),
    response: file.response(),
    ...file.answer(),
  };
}

/** The head gets the line ends of HTTP; the body ends where the section does. */
function responseBytes(section: string): Uint8Array {
  const blank = section.indexOf("\n\n");
  const head = section.slice(0, blank);
  const body = section.slice(blank + 2);
  const compress = CODINGS[CODING.exec(head)?.[1] ?? ""] ?? Buffer.from;
  const lines = head.replaceAll("\n", "\r\n");
  return Buffer.concat([
    Buffer.from(`${lines}\r\nconnection: close\r\n\r\n`),
    compress(body),
  ]);
}
