/** Searches for requests, as people write them. */
import { isKeyId } from "@gateway/shared/keys/key";
import { REQUEST_OUTCOMES } from "@gateway/shared/keys/request_row";
import type { RowFilter } from "./request_table.ts";

/** The fields of a search, in pages and on the command line. */
export const REQUEST_FIELDS = [
  "from",
  "until",
  "key",
  "model",
  "code",
  "request",
  "outcome",
] as const;
/** The fields as texts; an empty one asks for nothing. */
export type RequestTexts = Readonly<
  Record<typeof REQUEST_FIELDS[number], string>
>;

/** A search that cannot be read. */
export interface QueryMistake {
  field: typeof REQUEST_FIELDS[number];
  /** A sentence without its full stop. */
  message: string;
}

const AGO = /^(\d{1,4})\s*(m|h|d)$/;
const AGO_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const TIME = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?Z?)?$/;
const REQUEST_ID = /^(?:req_)?([0-9a-f]{32})$/i;
const TEXT_CHARS_MAX = 200;

/** How times may be written. */
export const TIME_FORMS =
  "2026-11-28, 2026-11-28T14:30 (UTC), or 30m, 2h, 7d before now";

/**
 * Reads a time in UTC, or how long ago it is. Returns null for any other text. A day
 * stands for its first moment.
 */
export function parseMoment(text: string, nowMs: number): number | null {
  const [, count, unit] = AGO.exec(text) ?? [];
  if (unit === "m" || unit === "h" || unit === "d") {
    return nowMs - Number(count) * AGO_MS[unit];
  }
  if (!TIME.test(text)) return null;
  const [day = "", time = "00:00"] = text.replace(/Z$/, "").split(/[T ]/);
  const timeMs = Date.parse(`${day}T${time}Z`);
  return Number.isNaN(timeMs) ? null : timeMs;
}

/** Reads a search. Returns the filter, or its first mistake. */
export function parseRequestQuery(
  texts: RequestTexts,
  nowMs: number,
): RowFilter | QueryMistake {
  const mistake = mistakeIn(texts, nowMs);
  if (mistake !== null) return mistake;
  const [, id] = REQUEST_ID.exec(texts.request) ?? [];
  return {
    keyIds: texts.key === "" ? null : [texts.key],
    model: texts.model,
    code: texts.code,
    requestId: id === undefined ? "" : `req_${id.toLowerCase()}`,
    outcome: REQUEST_OUTCOMES.find((each) => each === texts.outcome) ?? "",
    fromMs: parseMoment(texts.from, nowMs),
    toMs: parseMoment(texts.until, nowMs),
  };
}

function mistakeIn(texts: RequestTexts, nowMs: number): QueryMistake | null {
  const { key, request, outcome } = texts;
  for (const field of REQUEST_FIELDS) {
    const text = texts[field];
    if (text.length > TEXT_CHARS_MAX) {
      return {
        field,
        message: `Too long: at most ${TEXT_CHARS_MAX} characters`,
      };
    }
  }
  for (const field of ["from", "until"] as const) {
    const text = texts[field];
    if (text !== "" && parseMoment(text, nowMs) === null) {
      return { field, message: `Not a time: write ${TIME_FORMS}` };
    }
  }
  if (key !== "" && !isKeyId(key)) {
    const message =
      "Not the id of a key: these begin with key_, and the page of a key has its own";
    return { field: "key", message };
  }
  if (request !== "" && !REQUEST_ID.test(request)) {
    const message =
      "Not the id of a request: these have 32 hexadecimal digits after req_";
    return { field: "request", message };
  }
  const outcomes: readonly string[] = REQUEST_OUTCOMES;
  if (outcome !== "" && !outcomes.includes(outcome)) {
    return { field: "outcome", message: `One of ${outcomes.join(", ")}` };
  }
  const [fromMs, toMs] = [
    parseMoment(texts.from, nowMs),
    parseMoment(texts.until, nowMs),
  ];
  if (fromMs !== null && toMs !== null && fromMs >= toMs) {
    return { field: "until", message: "It is not after the beginning" };
  }
  return null;
}
