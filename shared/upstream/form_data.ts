/** Encodes `multipart/form-data` (RFC 7578) for model servers. */
import { Buffer } from "node:buffer";
import type { UploadedFile } from "../bus/job.ts";

const QUOTED = /["\r\n]/g;

/** A form with these fields, then these files. `boundary` occurs in none of them: it has 128 random bits. */
export function encodeForm(
  fields: readonly (readonly [name: string, value: string])[],
  files: readonly UploadedFile[],
  boundary: string,
): { contentType: string; body: Uint8Array } {
  const parts: Uint8Array[] = [];
  const add = (text: string) => parts.push(Buffer.from(text));
  for (const [name, value] of fields) {
    add(
      `--${boundary}\r\ncontent-disposition: form-data; ` +
        `name="${quoted(name)}"\r\n\r\n${value}\r\n`,
    );
  }
  for (const { field, name, type, content } of files) {
    add(
      `--${boundary}\r\ncontent-disposition: form-data; ` +
        `name="${quoted(field)}"; filename="${quoted(name)}"\r\n` +
        `content-type: ${type || "application/octet-stream"}\r\n\r\n`,
    );
    parts.push(content);
    add("\r\n");
  }
  add(`--${boundary}--\r\n`);
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: Buffer.concat(parts),
  };
}

const quoted = (text: string) =>
  text.replace(QUOTED, (char) => encodeURIComponent(char));
