/** `GET /openapi.json`: the description of the API. It is public: the same everywhere, without a secret. */
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { createHash } from "node:crypto";
import { type HeaderFields, JSON_HEADERS, sendBytes } from "./responses.ts";
import type { Exchange } from "./server.ts";

const BYTES = new TextEncoder().encode(JSON.stringify(document));
const ETAG = `"${createHash("sha256").update(BYTES).digest("base64url")}"`;
const HEADERS: HeaderFields = {
  ...JSON_HEADERS,
  // Browsers see a new version after five minutes and do not ask before.
  "cache-control": "public, max-age=300",
  "etag": ETAG,
};

/** Answers with the document, or with 304 if the client has it. */
export function sendReference({ headers, response }: Exchange): void {
  const known = (headers.get("if-none-match") ?? "").split(",")
    .map((tag) => tag.trim().replace(/^W\//, ""));
  if (!known.includes(ETAG) && !known.includes("*")) {
    return sendBytes(response, BYTES, { headers: HEADERS });
  }
  response.writeHead(304, HEADERS).end();
}
