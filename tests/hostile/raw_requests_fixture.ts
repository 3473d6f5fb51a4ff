/** Requests, byte by byte, that are wrong in some way, by the numbers of the contract. */
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

/** What is sent, and the status; 0: closed without an answer. */
export type Row = [name: string, sent: string | Uint8Array, status: number];

const EXPECTING = "Content-Length: 100\r\nExpect: 100-continue\r\n";
/** The first line of a request for the models. */
export const MODELS = "GET /v1/models HTTP/1.1";
/** The first line of a chat request. */
export const CHAT = "POST /v1/chat/completions HTTP/1.1";

/** Requests without a valid key: exactly the 401 body, without a call to Redis. */
export function unauthenticated(key: TestKey): Row[] {
  const good = key.value;
  const otherChar = good.charAt(10) === "a" ? "b" : "a";
  const mistyped = good.slice(0, 10) + otherChar + good.slice(11);
  const get = (headers: string, line = MODELS) =>
    request(line, HOST + CLOSE + headers);
  const latin1 = get("Authorization: Bearer sk-@@\r\n").replace("@@", "\xe9");
  return [
    ["1 no key", get(""), 401],
    ["2 Basic", get(`Authorization: Basic ${btoa(`u:${good}`)}\r\n`), 401],
    ["4 tab", get(`Authorization: Bearer\t${good}\r\n`), 401],
    ["5 two headers", get(bearer(good) + bearer(good)), 401],
    ["5 good, bad", get(bearer(good) + bearer("sk-wrong")), 401],
    ["5 bad, good", get(bearer("sk-wrong") + bearer(good)), 401],
    ["5 a list", get(`Authorization: Bearer ${good} ${good}\r\n`), 401],
    ["5 no scheme", get(`Authorization: ${good}\r\n`), 401],
    ["6 checksum", get(bearer(mistyped)), 401],
    ["6 short", get(bearer(good.slice(0, -1))), 401],
    ["6 long", get(bearer(`${good}0`)), 401],
    ["6 lower case", get(bearer(good.toLowerCase())), 401],
    ["6 other vendor", get(bearer(`sk-proj-${"a".repeat(48)}`)), 401],
    ["8 Latin-1", Uint8Array.from(latin1, (c) => c.charCodeAt(0)), 401],
    ["8 full width", get(bearer(`${good.slice(0, -1)}ａ`)), 401],
    ["10 9 kB credential", get(bearer("a".repeat(9_000))), 401],
    ["11 query", get("", `GET /v1/models?api_key=${good} HTTP/1.1`), 401],
    ["11 x-api-key", get(`X-Api-Key: ${good}\r\n`), 401],
    ["26 escaped", get("", "GET /v1/%6dodels HTTP/1.1"), 401],
    ["26 escaped root", get("", "GET /%76%31/models HTTP/1.1"), 401],
    ["27 TRACE", get("", "TRACE /v1/models HTTP/1.1"), 401],
    ["unknown path", get("", "GET /v1/nope HTTP/1.1"), 401],
    ["29 expecting 100", get(bearer("sk-x") + EXPECTING, CHAT), 401],
  ];
}

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

/** Headers: names, blanks, control characters, sizes, hosts. */
function headerRows(to: Requests, key: TestKey): Row[] {
  return [
    ["3 lower case", to.as(`authorization: bearer ${key.value}\r\n`), 200],
    ["4 blanks", to.as(`Authorization: Bearer   ${key.value}  \r\n`), 200],
    ["9 NUL", to.withHeader("X: a\0b\r\n"), 400],
    ["9 CR", to.withHeader("X: a\rb\r\n"), 400],
    ["9 LF", to.withHeader("X: a\nb\r\n"), 400],
    ["10 100 kB header", to.withHeader(`X: ${"a".repeat(100_000)}\r\n`), 431],
    ["10 1,000 headers", to.withHeader("X: a\r\n".repeat(1_000)), 200],
    ["23 two hosts", request(MODELS, HOST + to.headers), 400],
    ["23 no host", request(MODELS, CLOSE + bearer(key.value)), 400],
    ["22 bare LF", `GET /v1/models HTTP/1.1\nHost: x\n${CLOSE}\n`, 400],
    ["23 a path", request(MODELS, `Host: x/v1/models?\r\n${CLOSE}`), 400],
    ["23 IPv6", to.at("[::1]:8080"), 200],
    ["23 IPv6 with a zone", to.at("[fe80::1%25eth0]:8080"), 200],
    ["23 a path as a zone", to.at("[fe80::1%25a/b]"), 400],
    ["23 a zone without an address", to.at("x%25eth0"), 400],
  ];
}

/** Where a body ends: lengths, encodings, chunks. */
function framingRows(to: Requests): Row[] {
  return [
    ["17 length, chunked", to.post(LENGTH + CHUNKED_CODING), 400],
    ["17 chunked, length", to.post(CHUNKED_CODING + LENGTH), 400],
    [
      "18 two lengths",
      to.post("Content-Length: 5\r\nContent-Length: 6\r\n"),
      400,
    ],
    ["18 +2", to.post("Content-Length: +2\r\n", "{}"), 400],
    ["18 -1", to.post("Content-Length: -1\r\n", "{}"), 400],
    ["18 0x2", to.post("Content-Length: 0x2\r\n", "{}"), 400],
    ["18 list", to.post("Content-Length: 2, 3\r\n", "{}"), 400],
    ["18 20 digits", to.post(`Content-Length: ${"9".repeat(20)}\r\n`), 400],
    ["18 blank", to.post("Content-Length : 2\r\n", "{}"), 400],
    ["18 two equal lengths", to.post(LENGTH + LENGTH), 400],
    ["19 xchunked", to.encoded("xchunked"), 400],
    ["19 chunked, identity", to.encoded("chunked, identity"), 400],
    ["19 identity, chunked", to.encoded("identity, chunked"), 400],
    ["19 folded", to.encoded("\r\n chunked"), 400],
    [
      "19 chunked twice",
      to.post(CHUNKED_CODING + CHUNKED_CODING, CHUNKED),
      400,
    ],
    [
      "20 bad chunk size",
      to.post(CHUNKED_CODING, "zz\r\n{}\r\n0\r\n\r\n"),
      400,
    ],
    [
      "20 huge chunk size",
      to.post(CHUNKED_CODING, `${"f".repeat(17)}\r\n{}`),
      400,
    ],
    [
      "20 chunk too short",
      to.post(CHUNKED_CODING, "1\r\n{}\r\n0\r\n\r\n"),
      400,
    ],
    ["21 chunk extension", to.post(CHUNKED_CODING, EXTENDED), 400],
    ["33 20 MiB and more", to.post("Content-Length: 99999999\r\n", "{}"), 413],
    ["29 expecting more", to.post(`${LENGTH}Expect: 200-ok\r\n`), 200],
  ];
}

/** Paths and methods. */
function lineRows(to: Requests): Row[] {
  return [
    ["10 URI of 70 kB", to.get(`GET /v1/${"a".repeat(70_000)}`), 431],
    ["25 //", to.get("GET //v1/models"), 404],
    ["25 ..", to.get("GET /v1/../v1/models"), 404],
    ["25 %zz", to.get("GET /v1/%zz"), 404],
    ["25 %00", to.get("GET /v1/models/%00"), 404],
    ["26 escaped", to.get("GET /v1/%6dodels"), 200],
    ["27 TRACE", to.get("TRACE /v1/chat/completions"), 405],
    ["27 get", to.get("get /v1/models"), 400],
    ["27 unknown", to.get("FOO /v1/models"), 400],
    ["27 CONNECT", to.get("CONNECT x:80"), 0],
    ["27 PUT", to.get("PUT /v1/chat/completions"), 405],
  ];
}

/** What a body is said to be. */
function typeRows(to: Requests): Row[] {
  return [
    ["34 gzip", to.post(`${LENGTH}Content-Encoding: gzip\r\n`), 415],
    ["35 text", to.typed("text/plain"), 415],
    ["35 form", to.typed("application/x-www-form-urlencoded"), 415],
    ["35 parts", to.typed("multipart/form-data; boundary=x"), 415],
    ["35 no type", to.post(LENGTH), 200],
  ];
}

/** Other protocols, and other versions. */
function protocolRows(to: Requests): Row[] {
  return [
    ["upgrade", to.withHeader("Upgrade: websocket\r\n"), 200],
    ["upgrade of the JDK's client", to.withHeader(H2C), 200],
    ["the same with a body", to.post(LENGTH + H2C), 200],
    ["HTTP/2 with prior knowledge", H2_PREFACE, 400],
    ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400],
    ["no request", "hello\r\n\r\n", 400],
    ["HTTP/3.0", request("GET /v1/models HTTP/3.0", to.headers), 400],
  ];
}

/** Requests of a good key that are wrong in some other way. */
export function authenticated(key: TestKey): Row[] {
  const to = new Requests(key);
  return [
    ...headerRows(to, key),
    ...framingRows(to),
    ...lineRows(to),
    ...typeRows(to),
    ...protocolRows(to),
  ];
}
