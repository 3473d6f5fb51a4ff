/**
 * Which headers pass, in both directions: those by which clients and servers of these
 * dialects know each other's versions, sessions and limits. Never credentials, nor what
 * concerns a connection.
 */

/**
 * Headers of requests of Anthropic's and OpenAI's clients, and those that the command
 * lines send. Not those that name the client's account: the key of the gateway is of
 * another one.
 */
const OF_REQUESTS =
  /^((anthropic|openai)-(?!(organization|project|workspace)(-|$)).*|x-claude-code-.*|x-codex-.*|x-stainless-.*|x-app|originator|session[-_]id|thread[-_]id|conversation[-_]id|x-session-id|x-client-request-id)$/;
const OF_ANSWERS =
  /^(request-id|retry-after|retry-after-ms|anthropic-ratelimit-.*|x-ratelimit-.*|openai-(model|processing-ms|version)|x-codex-.*|x-models-etag)$/;

const VALUE = /^[\x20-\x7e]{0,2000}$/;
/**
 * All of them together, so that they fit into the head of an answer, and into a job.
 */
const CHARS_MAX = 8 * 1024;

/** The headers of a client that go to a model server. */
export function requestHeaders(
  headers: { readonly [name: string]: string | string[] | undefined },
): Record<string, string> {
  return headersOf(Object.entries(headers), OF_REQUESTS);
}

/** The headers of a model server that go to the client, by name in lower case. */
export function answerHeaders(
  headers: Iterable<readonly [name: string, value: string]>,
): Record<string, string> {
  return headersOf(headers, OF_ANSWERS);
}

function headersOf(
  headers: Iterable<readonly [string, string | string[] | undefined]>,
  form: RegExp,
): Record<string, string> {
  const result: Record<string, string> = {};
  let chars = 0;
  for (const [name, value] of headers) {
    if (typeof value !== "string" || !form.test(name) || !VALUE.test(value)) {
      continue;
    }
    chars += name.length + value.length;
    if (chars <= CHARS_MAX) result[name] = value;
  }
  return result;
}
