/**
 * The description of the API. It needs no key: it is the same everywhere, without a
 * secret.
 */
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { JSON_HEADERS, sendBytes } from "../http/responses.ts";
import { ANSWERED, type Call, type CallEnd } from "../requests/call.ts";
import { read, routeOf } from "./route.ts";

const REFERENCE_BYTES = new TextEncoder().encode(JSON.stringify(document));

/** The route of the API's description. */
export const REFERENCE = routeOf(
  "reference",
  "/openapi.json",
  read(sendReference),
);

/** Answers with the description. */
export function sendReference({ exchange: { response } }: Call): CallEnd {
  // Browsers see a new version after five minutes.
  const caching = { "cache-control": "public, max-age=300" };
  const headers = { ...JSON_HEADERS, ...caching };
  sendBytes(response, REFERENCE_BYTES, { headers });
  return ANSWERED;
}
