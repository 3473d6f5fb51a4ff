/**
 * Sends notices to a URL, signed as Standard Webhooks says
 * (https://www.standardwebhooks.com, 1.0.0), for which many languages have a library.
 */
import { createHmac } from "node:crypto";

/** The receiver of notices, and the secret that signs them. */
export interface NoticeTarget {
  readonly url: string;
  /** `whsec_` and the key in base64. */
  readonly secret: string;
}

const SECRET = /^whsec_([A-Za-z0-9+/]+={0,2})$/;
/** Bytes of a key, as the standard has it. */
const KEY_BYTES_MIN = 24;
const KEY_BYTES_MAX = 64;
const MS_PER_SECOND = 1_000;

/** Whether a text is a secret as the standard has it. */
export function isNoticeSecret(text: string): boolean {
  const bytes = keyOf(text).length;
  return bytes >= KEY_BYTES_MIN && bytes <= KEY_BYTES_MAX;
}

/** The headers of a body: its id, the time of this attempt, and the signature. */
export function signedHeaders(
  body: string,
  { id, secret, nowMs }: { id: string; secret: string; nowMs: number },
): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / MS_PER_SECOND));
  const signature = createHmac("sha256", keyOf(secret))
    .update(`${id}.${timestamp}.${body}`).digest("base64");
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${signature}`,
  };
}

/**
 * Sends a body once. Rejects unless it is answered with 2xx before the signal is
 * aborted; redirects are not followed. No error has the URL, which may be a secret.
 */
export async function sendNotice(
  body: string,
  { url, secret, id, nowMs, signal }: NoticeTarget & {
    id: string;
    nowMs: number;
    signal: AbortSignal;
  },
): Promise<void> {
  let response: Response;
  try {
    response = await fetch(url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...signedHeaders(body, { id, secret, nowMs }),
      },
      body,
      redirect: "manual",
      signal,
    });
  } catch {
    // The error of fetch contains the URL.
    throw new Error(signal.aborted ? "no answer in time" : "not reachable");
  }
  await response.body?.cancel();
  if (!response.ok) throw new Error(`status ${response.status}`);
}

const keyOf = (secret: string): Buffer =>
  Buffer.from(SECRET.exec(secret)?.[1] ?? "", "base64");
