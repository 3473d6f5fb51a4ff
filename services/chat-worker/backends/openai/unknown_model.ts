/** Codes of servers in use. */
const CODE = /^model_?not_?found$/i;
/** Their sentences, which begin with the model; the table of `error_response_test.ts` has them. */
const SENTENCE =
  /^(the )?(requested )?model\b.* (not found|not exist|not available)|^(no such|unknown) model\b/i;

/** Whether a code says that a server does not have the model it was asked for. */
export function isUnknownModelCode(code: string): boolean {
  return CODE.test(code);
}

/** Whether a message says so. */
export function isUnknownModelMessage(message: string): boolean {
  return SENTENCE.test(message);
}
