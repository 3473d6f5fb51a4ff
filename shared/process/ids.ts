/** Ids that the system generates. All are safe in subjects, keys, headers and logs. */

const INSTANCE_ID_BYTES = 9;

/** Fills an array with random bytes, `crypto.getRandomValues` in the services. */
export type RandomBytes = (length: number) => Uint8Array;

/** The process's source of randomness for ids, keys and secrets. */
export const randomBytes: RandomBytes = (length) =>
  crypto.getRandomValues(new Uint8Array(length));

/** Id of a request: a random UUID (122 random bits) as 32 hex characters. */
export function newRequestId(): string {
  return crypto.randomUUID().replaceAll("-", "");
}

/**
 * The request id for callers, logs and traces, in OpenAI's form `req_<32 hex>`. Model
 * servers get the id without the prefix.
 */
export function publicRequestId(requestId: string): string {
  return `req_${requestId}`;
}

/**
 * Id of a running process, new at every start, so that frames and beats of an earlier
 * one are ignored.
 */
export function newInstanceId(): string {
  return randomBytes(INSTANCE_ID_BYTES).toHex();
}
