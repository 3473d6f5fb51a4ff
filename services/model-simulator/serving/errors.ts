/** Error responses in the form of model servers. Pure. */

interface ErrorFields {
  status?: number;
  type?: string;
  param?: string | null;
  code?: string | null;
}

/** An error for the client: by default an invalid request. */
export class HttpError extends Error {
  readonly status: number;
  readonly body: object;

  constructor(message: string, fields: ErrorFields = {}) {
    super(message);
    const { type = "invalid_request_error", param = null, code = null } =
      fields;
    this.status = fields.status ?? 400;
    this.body = { error: { message, type, param, code } };
  }

  toResponse(): Response {
    const { status, body } = this;
    const isRetryable = [429, 503, 529].includes(status);
    const headers = isRetryable ? { "retry-after": "1" } : {};
    return Response.json(body, { status, headers });
  }
}

const TYPES: { [status: number]: string } = {
  403: "permission_error",
  429: "rate_limit_error",
  529: "overloaded_error",
};
const CODES: { [status: number]: string } = {
  401: "invalid_api_key",
  404: "model_not_found",
  429: "rate_limit_exceeded",
};

export function requestedError(status: number): HttpError {
  const type = status < 500 ? "invalid_request_error" : "server_error";
  return new HttpError("Failed on request.", {
    ...{ status, type: TYPES[status] ?? type, code: CODES[status] ?? null },
  });
}
