/** What servers in use write; the table of `error_response_test.ts` has their sentences. */
const CONTEXT_LENGTH = new RegExp(
  [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum (context|model) length",
    "context window",
    "(longer than|exceeds?) the (model's |available )?context (length|size)",
    "context length of only",
    "inputs` (tokens \\+ `max_new_tokens` )?must (be <=|have less than)",
    "prompt is too long",
    "input token count .* exceeds the maximum",
    "range of input length should be",
  ].join("|"),
  "i",
);

/** Whether a code, a type or a message says that a prompt does not fit into the model's context. */
export function isContextLength(texts: readonly string[]): boolean {
  return texts.some((text) => CONTEXT_LENGTH.test(text));
}
