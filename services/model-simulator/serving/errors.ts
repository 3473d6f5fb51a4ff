/** Error responses in the form of model servers. Pure. */

type Kind = readonly [type: string, code: string | null, message: string];

const KINDS: ReadonlyMap<number, Kind> = new Map<number, Kind>([
  [401, ["invalid_request_error", "invalid_api_key", "Incorrect API key."]],
  [403, ["permission_error", "forbidden", "No access to this model."]],
  [404, ["invalid_request_error", "model_not_found", "No such model."]],
  [429, ["rate_limit_error", "rate_limit_exceeded", "Rate limit reached."]],
  [503, ["server_error", "service_unavailable", "The server is overloaded."]],
  [529, ["overloaded_error", "overloaded_error", "Overloaded"]],
]);
const RETRYABLE = [429, 503, 529];

/** An error for the client: by default an invalid request. */
export class HttpError extends Error {
  readonly status: number;
  readonly body: object;

  constructor(
    message: string,
    { status = 400, type = "invalid_request_error", param = null, code = null }:
      {
        status?: number;
        type?: string;
        param?: string | null;
        code?: string | null;
      } = {},
  ) {
    super(message);
    this.status = status;
    this.body = { error: { message, type, param, code } };
  }

  toResponse(): Response {
    const { status, body } = this;
    const headers = RETRYABLE.includes(status) ? { "retry-after": "1" } : {};
    return Response.json(body, { status, headers });
  }
}

export function requestedError(status: number): HttpError {
  const [type, code, message] = KINDS.get(status) ??
    (status < 500
      ? ["invalid_request_error", null, "Refused on request."]
      : ["server_error", null, "Failed on request."]);
  return new HttpError(message, { status, type, code });
}
