import { Buffer } from "node:buffer";

/** Reads a whole body. Rejects with `tooLarge` once it has more bytes, and if it is cut. */
export async function wholeBody(
  body: ReadableStream<Uint8Array> | null,
  { bytesMax, tooLarge, signal }: {
    bytesMax: number;
    tooLarge: Error;
    signal?: AbortSignal;
  },
): Promise<Buffer<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const sink = new WritableStream<Uint8Array>({
    write: (chunk) => {
      bytes += chunk.length;
      if (bytes > bytesMax) throw tooLarge;
      chunks.push(chunk);
    },
  });
  await body?.pipeTo(sink, { ...signal && { signal } });
  return Buffer.concat(chunks);
}
