/** The rows of the error table about kept answers. */
const INVALID = { type: "invalid_request_error", retryable: false };

/** The codes of errors of kept answers; `error_kinds.ts` has all others. */
export const KEPT_ERROR_KINDS = {
  answer_not_found: {
    ...INVALID,
    status: 404,
    meaning:
      "There is no kept answer with this id for the key: it has expired, was " +
      "deleted, belongs to another account, or is of a model that the key may " +
      "not use.",
  },
  idempotency_mismatch: {
    ...INVALID,
    status: 422,
    meaning:
      "The `Idempotency-Key` was sent before with another body or to another " +
      "endpoint. Use a new one for each request.",
  },
  keep_unavailable: {
    ...INVALID,
    status: 400,
    meaning:
      "The request has `Idempotency-Key` or `X-Gateway-Keep`, but this gateway " +
      "or this endpoint keeps no answers. Send it without them.",
    forOperators:
      "JetStream in NATS; or `KEEP=off`, so that the headers are ignored.",
  },
  keep_full: {
    type: "requests",
    retryable: true,
    status: 429,
    meaning:
      "The kept answers of the account take as much room as they may. Delete " +
      "some, wait, or send the request without being kept.",
    forOperators: "`KEEP_ACCOUNT_BYTES`.",
  },
  keep_failed: {
    type: "server_error",
    retryable: true,
    status: 503,
    meaning:
      "The answer could not be kept, or the rest of a kept one was lost: the " +
      "log is full or away, or the answer too long. Retry, or without being " +
      "kept.",
    forOperators: "JetStream in NATS, its disk, `KEEP_BYTES`.",
  },
} as const;
