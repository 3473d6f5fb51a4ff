/**
 * The answer of a media job: a line of JSON, which the edge sends as headers, then its
 * body as it is.
 */
import { z } from "zod";
import { encodeHeadLine, HeadLineReader } from "./head_line.ts";

/** The headers of a file that its model server may set, besides its length. */
export const FILE_HEADERS = [
  "accept-ranges",
  "content-range",
  "etag",
  "last-modified",
] as const;
/**
 * Headers in which a server states the tokens of an answer that is nothing but sound,
 * such as `x-vllm-omni-num-tokens-in`.
 */
export const USAGE_HEADER =
  /^x-(?!ratelimit)[a-z0-9-]{1,60}-tokens(?:-in|-out)?$/;
const HEAD_BYTES_MAX = 4_096;

const value = z.string().regex(/^[\x20-\x7e]{1,200}$/);
const NAMES: ReadonlySet<string> = new Set([...FILE_HEADERS, "content-length"]);
const name = z.string().refine((name) =>
  NAMES.has(name) || USAGE_HEADER.test(name)
);
const headSchema = z.object({
  content_type: value,
  /** 206: the body is the part of a file that the client asked for. */
  status: z.literal([200, 206]).exactOptional(),
  headers: z.record(name, value).exactOptional(),
});

/** What the edge answers with before the body: its media type, status and headers. */
export type MediaHead = z.infer<typeof headSchema>;

/** Returns the line that precedes the body. */
export function encodeMediaHead(head: MediaHead): string {
  return encodeHeadLine(head);
}

/** Separates a head from the body that follows it. */
export class MediaHeadReader extends HeadLineReader<MediaHead> {
  constructor() {
    super(headSchema, HEAD_BYTES_MAX);
  }
}
