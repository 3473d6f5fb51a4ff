/** In whose dialect a client speaks, and where it then puts its key. */
import type { Exchange } from "../http/exchange.ts";

const MESSAGES = /^\/v1\/messages(\/|$)/;

/** Whether its client speaks Anthropic's dialect. */
export const isAnthropic = ({ path, headers }: Exchange): boolean =>
  MESSAGES.test(path) ||
  (headers["anthropic-version"] !== undefined &&
    /^\/v1\/models(\/|$)/.test(path));

/**
 * The credential of a request. Anthropic's clients send the key in `x-api-key`, or in
 * both headers; two different ones are none.
 */
export function credentialOf(exchange: Exchange): string {
  const { authorization = "", "x-api-key": key = "" } = exchange.headers;
  if (key === "" || !isAnthropic(exchange)) return authorization;
  const credential = `Bearer ${key.toString()}`;
  const isSame = authorization === "" || authorization === credential;
  return isSame ? credential : "";
}
