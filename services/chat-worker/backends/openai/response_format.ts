import type { ChatRequest } from "@gateway/shared/openai/chat";

/** What servers in use write; the table of `error_response_test.ts` has their sentences. */
const FORMAT_FAULT = /response_?format|json[ _]?schema|\bgrammar\b/i;

/** Whether the request says what form its answer must have: only then can that be at fault. */
export function asksForFormat({ response_format }: ChatRequest): boolean {
  return response_format !== undefined && response_format.type !== "text";
}

/** Whether a message says that the form asked for cannot be made. */
export function isFormatFault(message: string): boolean {
  return FORMAT_FAULT.test(message);
}
