/** Encodes HTTP requests to model servers. */
import type { BackendCall } from "./pool.ts";

const VISIBLE_ASCII = /^[\x20-\x7e\t]*$/;
const ID = /^[\w-]{1,128}$/;
const encoder = new TextEncoder();

/** Creates an encoded request with this body, for one call. */
export type RequestEncoder = (
  body: string | Uint8Array,
  call: Pick<BackendCall, "requestId" | "traceparent">,
) => Uint8Array;

export interface RequestOptions {
  method: "GET" | "POST" | "DELETE";
  /** The media types that are understood. */
  accept: string;
  /** Null for a request without a body. */
  contentType: string | null;
  /** If null, no credential is sent. */
  apiKey: string | null;
  /** Checked with the models file. */
  headers: { readonly [name: string]: string };
}

/** Encodes requests to `url`, the constant part only once. Throws if the key cannot be sent, without showing it. */
export function createRequestEncoder(
  url: URL,
  { method, accept, contentType, apiKey, headers }: RequestOptions,
): RequestEncoder {
  if (!VISIBLE_ASCII.test(apiKey ?? "")) {
    throw new Error("The key of a backend is not visible ASCII");
  }
  const sent = Object.entries({
    ...{ host: url.host, accept, "accept-encoding": "identity" },
    ...contentType !== null && { "content-type": contentType },
    ...apiKey !== null && { authorization: `Bearer ${apiKey}` },
    ...headers,
  }).map(([name, value]) => `${name.toLowerCase()}: ${value}\r\n`);
  const fixed = `${method} ${url.pathname}${url.search} HTTP/1.1\r\n` +
    `${sent.join("")}content-length: `;
  return (body, { requestId, traceparent = "" }) => {
    const bodyBytes = typeof body === "string" ? encoder.encode(body) : body;
    let head = `${fixed}${bodyBytes.length}\r\n`;
    if (ID.test(requestId)) head += `x-request-id: ${requestId}\r\n`;
    if (ID.test(traceparent)) head += `traceparent: ${traceparent}\r\n`;
    head += "\r\n";
    // The head is ASCII: one byte per character.
    const request = new Uint8Array(head.length + bodyBytes.length);
    encoder.encodeInto(head, request);
    request.set(bodyBytes, head.length);
    return request;
  };
}
