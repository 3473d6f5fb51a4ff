/** Bodies that cost more than they look, and how bodies are sent. */
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";

/** A member of a body: the model. */
export const MODEL = `"model":"${DEFAULT_MODEL_ID}"`;
/** A member of a body: one short message. */
export const MESSAGES = `"messages":[{"role":"user","content":"x"}]`;
/** A good body with more in it. */
export const members = (more: string) => `{${MODEL},${MESSAGES},${more}}`;
/** Encodes bodies as UTF-8. */
export const encoder = new TextEncoder();
/** Members of an object with different names. */
export const keys = (count: number) =>
  Array.from({ length: count }, (_, at) => `"k${at}":1`).join();
const MANY_KEYS = `{${keys(100_000)}}`;

/** Bodies that cost much to read, by what is wrong with them. */
export const HOSTILE = {
  depthBomb: "[".repeat(500_000),
  objectBomb: '{"a":'.repeat(200_000),
  manyKeys: MANY_KEYS,
  manyNestedKeys: members(`"metadata":${MANY_KEYS}`),
  hugeNumber: members(`"seed":${"9".repeat(1_000_000)}`),
  brackets: members(`"x":[${"[],".repeat(333_000)}[]]`),
  escapes: members(`"n":"${"\\u0041".repeat(170_000)}"`),
} as const;

/** The head of a chat request, for a raw socket. */
export const headOf = (key: string, framing: string) =>
  "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
  `Authorization: Bearer ${key}\r\n${framing}\r\n\r\n`;

/** Posts bytes as a chat request, whatever they are. */
export function postBody(baseUrl: string, key: string, body: BodyInit) {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
  };
  const url = `${baseUrl}/chat/completions`;
  return fetch(url, { method: "POST", headers, body });
}
