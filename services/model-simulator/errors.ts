/** Error responses in the formats of model servers. Pure. */
import type { RequestError } from "./request.ts";

type Kind = readonly [type: string, code: string | null, message: string];

/** What real servers send with each status. */
const KINDS: ReadonlyMap<number, Kind> = new Map<number, Kind>([
  [401, ["invalid_request_error", "invalid_api_key", "Incorrect API key."]],
  [403, ["permission_error", "forbidden", "No access to this model."]],
  [404, ["invalid_request_error", "model_not_found", "No such model."]],
  [429, ["rate_limit_error", "rate_limit_exceeded", "Rate limit reached."]],
  [503, ["server_error", "service_unavailable", "The server is overloaded."]],
  [529, ["overloaded_error", "overloaded_error", "Overloaded"]],
]);
const REFUSED: Kind = ["invalid_request_error", null, "Refused on request."];
const FAILED: Kind = ["server_error", null, "Failed on request."];
const RETRYABLE = [429, 503, 529];

/** The failure that a phrase requested. */
export function failureResponse(status: number): Response {
  const kind = KINDS.get(status) ?? (status < 500 ? REFUSED : FAILED);
  const [type, code, message] = kind;
  const error = { message, type, param: null, code };
  return Response.json({ error }, {
    status,
    headers: RETRYABLE.includes(status) ? { "retry-after": "1" } : {},
  });
}

/** The answer to an invalid request. */
export function refusalResponse(refusal: RequestError): Response {
  const { message, told: { status = 400, param = null, code = null } } =
    refusal;
  const error = { message, type: "invalid_request_error", param, code };
  return Response.json({ error }, { status });
}

/** The event of a stream that fails. */
export function failureEvent(): string {
  const [type, , message] = FAILED;
  const error = { message, type, param: null, code: 500 };
  return `data: ${JSON.stringify({ error })}\n\n`;
}
