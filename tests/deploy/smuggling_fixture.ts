import assert from "node:assert/strict";
import { readUntilQuiet } from "../conformance/context.ts";

/** A server that terminates TLS, and a valid key. */
export interface Door {
  port: number;
  /** Its authority, PEM. */
  ca: string;
  key: string;
}

const QUIET_MS = 300;
/** The path of the inner request. No server should see it as a request of its own. */
export const SMUGGLED_PATH = "/v1/smuggled";

/** Name, the headers that determine the length of the body, and the body. */
type Row = [name: string, framing: string, body: string];

/**
 * Requests of ambiguous length (RFC 9112 sections 6.3 and 11.2). By the RFC, each is
 * either refused or contains the inner request in its body.
 */
function ambiguous(inner: string): Row[] {
  const size = inner.length.toString(16);
  const chunks = `${size}\r\n${inner}\r\n0\r\n\r\n`;
  const chunked = "Transfer-Encoding: chunked\r\n";
  const toInner = `Content-Length: ${size.length + 2}\r\n`;
  const behind = `{}${inner}`;
  const all = `Content-Length: ${behind.length}\r\n`;
  return [
    ["a length, then chunks", toInner + chunked, chunks],
    ["chunks, then a length", chunked + toInner, chunks],
    ["chunked twice", chunked + chunked + toInner, chunks],
    ["a folded coding", `Transfer-Encoding:\r\n chunked\r\n${toInner}`, chunks],
    [
      "a tab before the coding",
      `Transfer-Encoding:\tchunked\r\n${toInner}`,
      chunks,
    ],
    [
      "chunked, identity",
      `Transfer-Encoding: chunked, identity\r\n${toInner}`,
      chunks,
    ],
    ["an unknown coding", `Transfer-Encoding: xchunked\r\n${all}`, behind],
    ["two lengths", `Content-Length: 2\r\n${all}`, behind],
    ["two lengths, the long one first", `${all}Content-Length: 2\r\n`, behind],
    ["a list of lengths", `Content-Length: 2, ${behind.length}\r\n`, behind],
    ["a length with a sign", `Content-Length: +${behind.length}\r\n`, behind],
    ["a blank before the colon", `Content-Length : 2\r\n${all}`, behind],
    [
      "a line feed in a chunk's extension",
      chunked,
      `${size};\nx\r\n${inner}\r\n0\r\n\r\n`,
    ],
  ];
}

async function exchange({ port, ca }: Door, sent: string): Promise<string> {
  using connection = await Deno.connectTls({
    hostname: "localhost",
    port,
    caCerts: [ca],
  });
  const bytes = new TextEncoder().encode(sent);
  for (let at = 0; at < bytes.length;) {
    at += await connection.write(bytes.subarray(at));
  }
  // Awaited, because `using` would close the connection before it ends.
  return await readUntilQuiet(connection, QUIET_MS);
}

/** Sends each of them and fails when one has more than one answer. */
export async function sendAmbiguous(door: Door): Promise<void> {
  const head = (line: string) =>
    `${line} HTTP/1.1\r\nHost: localhost:${door.port}\r\n` +
    `Authorization: Bearer ${door.key}\r\n`;
  const inner = `${head(`GET ${SMUGGLED_PATH}`)}\r\n`;
  const outer = head("POST /v1/chat/completions");
  const rows: Row[] = ambiguous(inner);
  const requests = rows.map(([name, framing, body]) =>
    [name, `${outer}${framing}\r\n${body}`] as const
  );
  const length = `Content-Length: ${inner.length}\r\n`;
  requests.push([
    "a request in the body of a GET",
    `${head("GET /v1/models")}${length}\r\n${inner}`,
  ]);
  for (const [name, request] of requests) {
    const text = await exchange(door, request);
    const answers = text.match(/^HTTP\/1\.1 (?!100)\d{3}/gm) ?? [];
    assert.ok(answers.length <= 1, `${name}: ${answers.join(", ")}`);
  }
}
