import type { BackendCall } from "../backend.ts";

/** What every request to one model server has in common. */
export interface RequestHeadOptions {
  /** Of `POST {baseUrl}/chat/completions`. */
  url: URL;
  /** Sent as bearer credential; null: none is sent. */
  apiKey: string | null;
  headers: { readonly [name: string]: string };
}

/** Puts a request together, ready to be written. */
export type EncodeRequest = (body: string, call: BackendCall) => Uint8Array;

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Visible ASCII and blanks: what every server reads alike. */
const HEADER_VALUE = /^[\x20-\x7e\t]*$/;
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
const REQUEST_ID = /^[\w-]{1,128}$/;

/** Ours to set: a configured one would break the framing or say what is not so. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  "accept",
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "te",
  "traceparent",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "x-request-id",
]);

/**
 * Makes the function that encodes a request. All that does not change is put
 * together once. Throws an Error that names the header, never its value, when
 * the configuration cannot be sent.
 */
export function createRequestEncoder(
  options: RequestHeadOptions,
): EncodeRequest {
  const encoder = new TextEncoder();
  const fixed = fixedHead(options);
  return (body, call) => {
    const bodyBytes = encoder.encode(body);
    let head = `${fixed}content-length: ${bodyBytes.length}\r\n`;
    if (REQUEST_ID.test(call.requestId)) {
      head += `x-request-id: ${call.requestId}\r\n`;
    }
    if (call.traceparent !== undefined && TRACEPARENT.test(call.traceparent)) {
      head += `traceparent: ${call.traceparent}\r\n`;
    }
    head += "\r\n";
    // A head is ASCII, one byte a character.
    const request = new Uint8Array(head.length + bodyBytes.length);
    encoder.encodeInto(head, request);
    request.set(bodyBytes, head.length);
    return request;
  };
}

function fixedHead(options: RequestHeadOptions): string {
  const { url, apiKey, headers } = options;
  const lines = [
    `POST ${url.pathname}${url.search} HTTP/1.1`,
    `host: ${url.host}`,
    "accept: text/event-stream, application/json",
    "accept-encoding: identity",
    "content-type: application/json",
  ];
  if (apiKey !== null) {
    checkHeader("authorization", apiKey);
    lines.push(`authorization: Bearer ${apiKey}`);
  }
  for (const [name, value] of Object.entries(headers)) {
    checkHeader(name, value);
    if (OWN_HEADERS.has(name.toLowerCase())) {
      throw new Error(`Header ${name} of a backend cannot be configured`);
    }
    if (apiKey !== null && name.toLowerCase() === "authorization") {
      throw new Error(
        "A backend has both an API key and a header authorization",
      );
    }
    lines.push(`${name.toLowerCase()}: ${value}`);
  }
  return `${lines.join("\r\n")}\r\n`;
}

function checkHeader(name: string, value: string): void {
  if (!HEADER_NAME.test(name)) {
    throw new Error(
      `Malformed header name of a backend: ${JSON.stringify(name)}`,
    );
  }
  if (!HEADER_VALUE.test(value)) {
    throw new Error(`Malformed value of the header ${name} of a backend`);
  }
}
