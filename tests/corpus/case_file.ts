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

/** Parses a file. Throws a `SyntaxError` that names what is wrong. */
export function parseCase(text: string): CorpusCase {
  const [intro = "", ...rest] = text.split(SECTION);
  const sections = new Map<string, string>();
  for (let at = 0; at < rest.length; at += 2) {
    sections.set(rest[at] ?? "", rest[at + 1] ?? "");
  }
  const [title = ""] = intro.split("\n");
  const [status = "", ...answer] = sectionOf(sections, "answer").split("\n");
  const response = sections.get("response");
  return {
    title,
    model: jsonOf(sections.get("model") ?? "{}"),
    backend: jsonOf(sections.get("backend") ?? "{}"),
    request: jsonOf(expand(sectionOf(sections, "request"))),
    forwarded: jsonOf(expand(sections.get("forwarded") ?? "{}")),
    response: response === undefined ? null : responseBytes(expand(response)),
    status: Number(status),
    answer: jsonOf(expand(answer.join("\n")) || "{}"),
  };
}

function sectionOf(sections: ReadonlyMap<string, string>, name: string) {
  const section = sections.get(name);
  if (section === undefined) throw new SyntaxError(`No section '${name}'`);
  return section;
}

function jsonOf(text: string) {
  return JSON.parse(text);
}

const expand = (text: string): string =>
  text.replace(REPEAT, (_, count, what) => what.repeat(Number(count)));

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
