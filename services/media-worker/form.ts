/** Encodes `multipart/form-data` (RFC 7578) for model servers. */
import { Buffer } from "node:buffer";
import type { UploadedFile } from "@gateway/shared/bus/job";
import { newRequestId } from "@gateway/shared/process/ids";

const QUOTED = /["\r\n]/g;

/** The values of a field: one part for each; none for what is undefined. */
export type FormFields = {
  readonly [name: string]: string | number | readonly string[] | undefined;
};

/**
 * Encodes the fields and then the files, in this order, under a random boundary.
 * Quotes and line ends in names are percent-encoded, as browsers do.
 */
export function encodeForm(
  fields: FormFields,
  files: readonly UploadedFile[],
): { contentType: string; body: Uint8Array } {
  // Its 128 random bits occur in no part.
  const boundary = newRequestId();
  const parts: Uint8Array[] = [];
  const add = (head: string, content: Uint8Array) => {
    const start = `--${boundary}\r\ncontent-disposition: form-data; ${head}`;
    parts.push(Buffer.from(`${start}\r\n\r\n`), content, Buffer.from("\r\n"));
  };
  for (const [name, value] of Object.entries(fields)) {
    for (const each of [value ?? []].flat()) {
      add(`name="${quoted(name)}"`, Buffer.from(String(each)));
    }
  }
  for (const { field, name, type, content } of files) {
    add(
      `name="${quoted(field)}"; filename="${quoted(name)}"\r\n` +
        `content-type: ${type || "application/octet-stream"}`,
      content,
    );
  }
  parts.push(Buffer.from(`--${boundary}--\r\n`));
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: Buffer.concat(parts),
  };
}

const quoted = (text: string) =>
  text.replace(QUOTED, (char) => encodeURIComponent(char));
