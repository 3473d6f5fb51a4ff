/** Requests, byte by byte, that have no valid key. */
import type { TestKey } from "../support/gateway/limited.ts";
import {
  bearer,
  CHAT,
  CLOSE,
  HOST,
  MODELS,
  type RawRequest,
  request,
} from "./raw_requests_fixture.ts";

const EXPECTING = "Content-Length: 100\r\nExpect: 100-continue\r\n";

/** Requests without a valid key: exactly the 401 body, without a call to Redis. */
export function unauthenticated({ value: good }: TestKey): RawRequest[] {
  return [...malformedCredentials(good), ...withoutCredentials(good)];
}

const get = (headers: string, line = MODELS) =>
  request(line, HOST + CLOSE + headers);

/** Headers of authorization that hold no key. */
function malformedCredentials(good: string): RawRequest[] {
  const otherChar = good.charAt(10) === "a" ? "b" : "a";
  const mistyped = good.slice(0, 10) + otherChar + good.slice(11);
  const latin1 = get("Authorization: Bearer sk-@@\r\n").replace("@@", "\xe9");
  return [
    { name: "1 no key", bytes: get("") },
    {
      name: "2 Basic",
      bytes: get(`Authorization: Basic ${btoa(`u:${good}`)}\r\n`),
    },
    { name: "4 tab", bytes: get(`Authorization: Bearer\t${good}\r\n`) },
    { name: "5 two headers", bytes: get(bearer(good) + bearer(good)) },
    { name: "5 good, bad", bytes: get(bearer(good) + bearer("sk-wrong")) },
    { name: "5 bad, good", bytes: get(bearer("sk-wrong") + bearer(good)) },
    {
      name: "5 a list",
      bytes: get(`Authorization: Bearer ${good} ${good}\r\n`),
    },
    { name: "5 no scheme", bytes: get(`Authorization: ${good}\r\n`) },
    { name: "6 checksum", bytes: get(bearer(mistyped)) },
    { name: "6 short", bytes: get(bearer(good.slice(0, -1))) },
    { name: "6 long", bytes: get(bearer(`${good}0`)) },
    { name: "6 lower case", bytes: get(bearer(good.toLowerCase())) },
    { name: "6 other vendor", bytes: get(bearer(`sk-proj-${"a".repeat(48)}`)) },
    {
      name: "8 Latin-1",
      bytes: Uint8Array.from(latin1, (c) => c.charCodeAt(0)),
    },
    { name: "8 full width", bytes: get(bearer(`${good.slice(0, -1)}ａ`)) },
    { name: "10 9 kB credential", bytes: get(bearer("a".repeat(9_000))) },
  ];
}

/** Requests whose key, if there is one, stands elsewhere; of any path and method. */
function withoutCredentials(good: string): RawRequest[] {
  return [
    {
      name: "11 query",
      bytes: get("", `GET /v1/models?api_key=${good} HTTP/1.1`),
    },
    { name: "11 x-api-key", bytes: get(`X-Api-Key: ${good}\r\n`) },
    { name: "26 escaped", bytes: get("", "GET /v1/%6dodels HTTP/1.1") },
    { name: "26 escaped root", bytes: get("", "GET /%76%31/models HTTP/1.1") },
    { name: "27 TRACE", bytes: get("", "TRACE /v1/models HTTP/1.1") },
    { name: "unknown path", bytes: get("", "GET /v1/nope HTTP/1.1") },
    { name: "29 expecting 100", bytes: get(bearer("sk-x") + EXPECTING, CHAT) },
  ];
}
