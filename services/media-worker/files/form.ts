/** Encodes `multipart/form-data` (RFC 7578) for model servers. */
import { Buffer } from "node:buffer";
import type { UploadedFile } from "@gateway/shared/bus/job";
import { newRequestId } from "@gateway/shared/process/ids";

const QUOTED = /["\r\n]/g;

/** The values of fields: one part for each; none for what is undefined. */
export interface FormFields {
  readonly [name: string]: unknown;
}

/**
 * Encodes the fields and then the files, in this order, under a random boundary. The
 * model comes first, so that model servers can route what follows.
 * Quotes and line ends in names are percent-encoded, as browsers do. The body refers to
 * the bytes of the files: it copies none of them.
 */
export function encodeForm(
  { model, ...fields }: FormFields,
  files: readonly UploadedFile[],
): { contentType: string; body: readonly Uint8Array[] } {
  // Its 128 random bits occur in no part.
  const boundary = newRequestId();
  const body: Uint8Array[] = [];
  const start = `--${boundary}\r\ncontent-disposition: form-data; `;
  /** What comes before the next file. */
  let text = "";
  const all: [string, unknown][] = [["model", model]];
  for (const [name, value] of all.concat(Object.entries(fields))) {
    for (const each of [value ?? []].flat()) {
      text += `${start}name="${quoted(name)}"\r\n\r\n${each}\r\n`;
    }
  }
  for (const { field, name, type, content } of files) {
    text += `${start}name="${quoted(field)}"; filename="${quoted(name)}"\r\n` +
      `content-type: ${type || "application/octet-stream"}\r\n\r\n`;
    body.push(Buffer.from(text), content);
    text = "\r\n";
  }
  body.push(Buffer.from(`${text}--${boundary}--\r\n`));
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body,
  };
}

const quoted = (text: string) =>
  text.replace(QUOTED, (char) => encodeURIComponent(char));
