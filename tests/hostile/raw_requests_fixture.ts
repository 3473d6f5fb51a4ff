/**
 * Requests, byte by byte, that are wrong in some way, by the numbers of the contract.
 */
import type { TestKey } from "../support/gateway/limited.ts";

/** A header that every request of HTTP/1.1 has. */
export const HOST = "Host: localhost\r\n";
/** The connection ends with the answer. */
export const CLOSE = "Connection: close\r\n";
/** A short chat request. */
export const BODY = JSON.stringify({
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
});
const CHUNKED = "2\r\n{}\r\n0\r\n\r\n";
const EXTENDED = CHUNKED.replace("2", `2;${"a".repeat(20_000)}`);
const CHUNKED_CODING = "Transfer-Encoding: chunked\r\n";
/** The length of {@link BODY}. */
export const LENGTH = `Content-Length: ${BODY.length}\r\n`;
const H2C = "Connection: Upgrade, HTTP2-Settings\r\n" +
  "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
const H2_PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/** A header with a key. */
export const bearer = (value: string) => `Authorization: Bearer ${value}\r\n`;
/** A request of a first line, headers and a body. */
export const request = (line: string, headers: string, body = "") =>
  `${line}\r\n${headers}\r\n${body}`;

/** A request as it goes over the wire. */
export interface RawRequest {
  /** Its number in the contract, and what it is. */
  name: string;
  bytes: string | Uint8Array;
}

/** A request, and the status of its answer; 0: closed without an answer. */
export interface Row extends RawRequest {
  status: number;
}

/** The first line of a request for the models. */
export const MODELS = "GET /v1/models HTTP/1.1";
/** The first line of a chat request. */
export const CHAT = "POST /v1/chat/completions HTTP/1.1";

/** Requests of a good key, or of another credential, that want no kept connection. */
class Requests {
  readonly #key: string;

  constructor({ value }: TestKey) {
    this.#key = bearer(value);
  }

  /** The headers of a good request. */
  get headers(): string {
    return HOST + CLOSE + this.#key;
  }

  /** A request without a body, with another first line. */
  get(line: string): string {
    return request(`${line} HTTP/1.1`, this.headers);
  }

  /** A request for the models with one more header. */
  withHeader(header: string): string {
    return request(MODELS, this.headers + header);
  }

  /** A chat request with more headers. */
  post(more: string, body = BODY): string {
    return request(CHAT, this.headers + more, body);
  }

  /** A request for the models, with other headers of authorization. */
  as(credential: string): string {
    return request(MODELS, HOST + CLOSE + credential);
  }

  /** With this `Host`. */
  at(host: string): string {
    return request(
      MODELS,
      `Host: ${host}\r\n${this.headers.replace(HOST, "")}`,
    );
  }

  /** A chunked chat request with this transfer encoding. */
  encoded(coding: string): string {
    return this.post(`Transfer-Encoding: ${coding}\r\n`, CHUNKED);
  }

  /** A chat request of this media type. */
  typed(type: string): string {
    return this.post(`${LENGTH}Content-Type: ${type}\r\n`);
  }
}

/** Headers: names, blanks, control characters, sizes. */
function headerRows(to: Requests, key: TestKey): Row[] {
  return [
    {
      name: "3 lower case",
      bytes: to.as(`authorization: bearer ${key.value}\r\n`),
      status: 200,
    },
    {
      name: "4 blanks",
      bytes: to.as(`Authorization: Bearer   ${key.value}  \r\n`),
      status: 200,
    },
    { name: "9 NUL", bytes: to.withHeader("X: a\0b\r\n"), status: 400 },
    { name: "9 CR", bytes: to.withHeader("X: a\rb\r\n"), status: 400 },
    { name: "9 LF", bytes: to.withHeader("X: a\nb\r\n"), status: 400 },
    {
      name: "10 100 kB header",
      bytes: to.withHeader(`X: ${"a".repeat(100_000)}\r\n`),
      status: 431,
    },
    {
      name: "10 1,000 headers",
      bytes: to.withHeader("X: a\r\n".repeat(1_000)),
      status: 200,
    },
  ];
}

/** Hosts: none, several, and what is none. */
function hostRows(to: Requests, key: TestKey): Row[] {
  return [
    {
      name: "23 two hosts",
      bytes: request(MODELS, HOST + to.headers),
      status: 400,
    },
    {
      name: "23 no host",
      bytes: request(MODELS, CLOSE + bearer(key.value)),
      status: 400,
    },
    {
      name: "22 bare LF",
      bytes: `GET /v1/models HTTP/1.1\nHost: x\n${CLOSE}\n`,
      status: 400,
    },
    {
      name: "23 a path",
      bytes: request(MODELS, `Host: x/v1/models?\r\n${CLOSE}`),
      status: 400,
    },
    { name: "23 IPv6", bytes: to.at("[::1]:8080"), status: 200 },
    {
      name: "23 IPv6 with a zone",
      bytes: to.at("[fe80::1%25eth0]:8080"),
      status: 200,
    },
    {
      name: "23 a path as a zone",
      bytes: to.at("[fe80::1%25a/b]"),
      status: 400,
    },
    {
      name: "23 a zone without an address",
      bytes: to.at("x%25eth0"),
      status: 400,
    },
  ];
}

/** Where a body ends: lengths, encodings, chunks. */
function framingRows(to: Requests): Row[] {
  return [...lengthRows(to), ...codingRows(to), ...unsentRows(to)];
}

/** Where a body ends by its length. */
function lengthRows(to: Requests): Row[] {
  return [
    {
      name: "17 length, chunked",
      bytes: to.post(LENGTH + CHUNKED_CODING),
      status: 400,
    },
    {
      name: "17 chunked, length",
      bytes: to.post(CHUNKED_CODING + LENGTH),
      status: 400,
    },
    {
      name: "18 two lengths",
      bytes: to.post("Content-Length: 5\r\nContent-Length: 6\r\n"),
      status: 400,
    },
    {
      name: "18 +2",
      bytes: to.post("Content-Length: +2\r\n", "{}"),
      status: 400,
    },
    {
      name: "18 -1",
      bytes: to.post("Content-Length: -1\r\n", "{}"),
      status: 400,
    },
    {
      name: "18 0x2",
      bytes: to.post("Content-Length: 0x2\r\n", "{}"),
      status: 400,
    },
    {
      name: "18 list",
      bytes: to.post("Content-Length: 2, 3\r\n", "{}"),
      status: 400,
    },
    {
      name: "18 20 digits",
      bytes: to.post(`Content-Length: ${"9".repeat(20)}\r\n`),
      status: 400,
    },
    {
      name: "18 blank",
      bytes: to.post("Content-Length : 2\r\n", "{}"),
      status: 400,
    },
    {
      name: "18 two equal lengths",
      bytes: to.post(LENGTH + LENGTH),
      status: 400,
    },
  ];
}

/** Bodies that are not sent, because they are too large or must be asked for. */
function unsentRows(to: Requests): Row[] {
  return [
    {
      name: "33 20 MiB and more",
      bytes: to.post("Content-Length: 99999999\r\n", "{}"),
      status: 413,
    },
    {
      name: "29 expecting more",
      bytes: to.post(`${LENGTH}Expect: 200-ok\r\n`),
      status: 200,
    },
  ];
}

/** Where a body ends by its transfer coding. */
function codingRows(to: Requests): Row[] {
  return [
    { name: "19 xchunked", bytes: to.encoded("xchunked"), status: 400 },
    {
      name: "19 chunked, identity",
      bytes: to.encoded("chunked, identity"),
      status: 400,
    },
    {
      name: "19 identity, chunked",
      bytes: to.encoded("identity, chunked"),
      status: 400,
    },
    { name: "19 folded", bytes: to.encoded("\r\n chunked"), status: 400 },
    {
      name: "19 chunked twice",
      bytes: to.post(CHUNKED_CODING + CHUNKED_CODING, CHUNKED),
      status: 400,
    },
    {
      name: "20 bad chunk size",
      bytes: to.post(CHUNKED_CODING, "zz\r\n{}\r\n0\r\n\r\n"),
      status: 400,
    },
    {
      name: "20 huge chunk size",
      bytes: to.post(CHUNKED_CODING, `${"f".repeat(17)}\r\n{}`),
      status: 400,
    },
    {
      name: "20 chunk too short",
      bytes: to.post(CHUNKED_CODING, "1\r\n{}\r\n0\r\n\r\n"),
      status: 400,
    },
    {
      name: "21 chunk extension",
      bytes: to.post(CHUNKED_CODING, EXTENDED),
      status: 400,
    },
  ];
}

/** Paths and methods. */
function lineRows(to: Requests): Row[] {
  return [
    {
      name: "10 URI of 70 kB",
      bytes: to.get(`GET /v1/${"a".repeat(70_000)}`),
      status: 431,
    },
    { name: "25 //", bytes: to.get("GET //v1/models"), status: 404 },
    { name: "25 ..", bytes: to.get("GET /v1/../v1/models"), status: 404 },
    { name: "25 %zz", bytes: to.get("GET /v1/%zz"), status: 404 },
    { name: "25 %00", bytes: to.get("GET /v1/models/%00"), status: 404 },
    { name: "26 escaped", bytes: to.get("GET /v1/%6dodels"), status: 200 },
    {
      name: "27 TRACE",
      bytes: to.get("TRACE /v1/chat/completions"),
      status: 405,
    },
    { name: "27 get", bytes: to.get("get /v1/models"), status: 400 },
    { name: "27 unknown", bytes: to.get("FOO /v1/models"), status: 400 },
    { name: "27 CONNECT", bytes: to.get("CONNECT x:80"), status: 0 },
    { name: "27 PUT", bytes: to.get("PUT /v1/chat/completions"), status: 405 },
  ];
}

/** What a body is said to be. */
function typeRows(to: Requests): Row[] {
  return [
    {
      name: "34 gzip",
      bytes: to.post(`${LENGTH}Content-Encoding: gzip\r\n`),
      status: 415,
    },
    { name: "35 text", bytes: to.typed("text/plain"), status: 415 },
    {
      name: "35 form",
      bytes: to.typed("application/x-www-form-urlencoded"),
      status: 415,
    },
    {
      name: "35 parts",
      bytes: to.typed("multipart/form-data; boundary=x"),
      status: 415,
    },
    { name: "35 no type", bytes: to.post(LENGTH), status: 200 },
  ];
}

/** Other protocols, and other versions. */
function protocolRows(to: Requests): Row[] {
  return [
    {
      name: "upgrade",
      bytes: to.withHeader("Upgrade: websocket\r\n"),
      status: 200,
    },
    {
      name: "upgrade of the JDK's client",
      bytes: to.withHeader(H2C),
      status: 200,
    },
    { name: "the same with a body", bytes: to.post(LENGTH + H2C), status: 200 },
    { name: "HTTP/2 with prior knowledge", bytes: H2_PREFACE, status: 400 },
    {
      name: "TLS",
      bytes: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
      status: 400,
    },
    { name: "no request", bytes: "hello\r\n\r\n", status: 400 },
    {
      name: "HTTP/3.0",
      bytes: request("GET /v1/models HTTP/3.0", to.headers),
      status: 400,
    },
  ];
}

/** Requests of a good key that are wrong in some other way. */
export function authenticated(key: TestKey): Row[] {
  const to = new Requests(key);
  return [
    ...headerRows(to, key),
    ...hostRows(to, key),
    ...framingRows(to),
    ...lineRows(to),
    ...typeRows(to),
    ...protocolRows(to),
  ];
}
