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

const KINDS: { [status: number]: [message: string, fields: ErrorFields] } = {
  401: ["Incorrect API key.", { code: "invalid_api_key" }],
  403: ["No access to this model.", {
    ...{ type: "permission_error", code: "forbidden" },
  }],
  404: ["No such model.", { code: "model_not_found" }],
  429: ["Rate limit reached.", {
    ...{ type: "rate_limit_error", code: "rate_limit_exceeded" },
  }],
  503: ["The server is overloaded.", {
    ...{ type: "server_error", code: "service_unavailable" },
  }],
  529: ["Overloaded", { type: "overloaded_error", code: "overloaded_error" }],
};

export function requestedError(status: number): HttpError {
  const [message, fields] = KINDS[status] ??
    (status < 500
      ? ["Refused on request.", {}]
      : ["Failed on request.", { type: "server_error" }]);
  return new HttpError(message, { status, ...fields });
}
