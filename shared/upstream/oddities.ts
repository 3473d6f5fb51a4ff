/**
 * What answers of model servers have that is not as it should be, but does no harm: it
 * is undone or skipped, and counted, so that operators see it.
 */

/** Each kind, and what it means. */
export const ODDITIES = {
  event_skipped:
    "an event that is no chunk, such as a keep-alive in a data line",
  arguments_repaired:
    "arguments of a tool call that came twice or after an empty object",
  finish_replaced: "the finish reason tool_calls without any call",
  usage_refused: "counts of tokens that cannot be true",
  usage_repaired:
    "counts of tokens that do not add up, of which the larger are charged",
  label_ignored: "a body that is not what its content type says",
  tools_dropped: "types of tools that the models file drops",
  form_converted:
    "an answer in another form than was asked for, such as one body in place of events",
  address_fetched: "the address of an image in place of the image",
  coding_unasked: "a compressed body, although identity was asked for",
} as const;

/** A kind of oddity: a row of the table above. */
export type Oddity = keyof typeof ODDITIES;

/** What was undone or skipped in an answer of a backend, and how often. */
export interface OddityReport {
  backend: string;
  oddity: Oddity;
  count: number;
}
