import type { ConsoleContext } from "./context.ts";

/** Answers with a file, streamed line by line to bound memory. */
export function answerCsv(
  c: ConsoleContext,
  name: string,
  lines: AsyncIterable<string>,
): Response {
  const body = ReadableStream.from(lines);
  return c.body(body.pipeThrough(new TextEncoderStream()), 200, {
    "content-type": "text/csv; charset=utf-8",
    "content-disposition": `attachment; filename="${name}"`,
  });
}
