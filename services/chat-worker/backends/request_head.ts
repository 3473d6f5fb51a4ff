/** The request to a model server, as bytes. */
import type { BackendCall } from "./backend.ts";

const VISIBLE_ASCII = /^[\x20-\x7e\t]*$/;
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
const REQUEST_ID = /^[\w-]{1,128}$/;
const encoder = new TextEncoder();

/** Puts a request together, ready to be written. */
export type EncodeRequest = (body: string, call: BackendCall) => Uint8Array;

/**
 * Makes the function that encodes a request to `url`. All that does not change is
 * put together once; `headers` were checked with the models file. Throws an Error
 * that does not hold the key when that cannot be sent.
 */
export function createRequestEncoder(
  url: URL,
  apiKey: string | null,
  headers: { readonly [name: string]: string },
): EncodeRequest {
  if (!VISIBLE_ASCII.test(apiKey ?? "")) {
    throw new Error("The key of a backend is not visible ASCII");
  }
  const fixed = [
    `POST ${url.pathname}${url.search} HTTP/1.1`,
    `host: ${url.host}`,
    "accept: text/event-stream, application/json",
    "accept-encoding: identity",
    "content-type: application/json",
    ...(apiKey === null ? [] : [`authorization: Bearer ${apiKey}`]),
    ...Object.entries(headers).map(([name, value]) =>
      `${name.toLowerCase()}: ${value}`
    ),
  ].join("\r\n");
  return (body, { requestId, traceparent = "" }) => {
    const bodyBytes = encoder.encode(body);
    let head = `${fixed}\r\ncontent-length: ${bodyBytes.length}\r\n`;
    if (REQUEST_ID.test(requestId)) head += `x-request-id: ${requestId}\r\n`;
    if (TRACEPARENT.test(traceparent)) {
      head += `traceparent: ${traceparent}\r\n`;
    }
    head += "\r\n";
    // A head is ASCII, one byte a character.
    const request = new Uint8Array(head.length + bodyBytes.length);
    encoder.encodeInto(head, request);
    request.set(bodyBytes, head.length);
    return request;
  };
}
