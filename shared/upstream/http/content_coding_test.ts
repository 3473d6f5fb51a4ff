/** Compressed answers of model servers. */
import assert from "node:assert/strict";
import {
  brotliCompressSync,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from "node:zlib";
import { piecesOf } from "./bytes_fixture.ts";
import { ContentDecoder, type ReadPiece } from "./content_coding.ts";

const TEXT = "data: hello wörld\n\n".repeat(200);
const MIB = 1024 * 1024;

/** Reads pieces of this size from the bytes, and counts those that were read. */
function sourceOf(bytes: Uint8Array, size: number) {
  const pieces = piecesOf(bytes, size);
  const source = {
    bytesRead: 0,
    read: (() => {
      const { value } = pieces.next();
      source.bytesRead += value?.length ?? 0;
      return Promise.resolve(value ?? null);
    }) as ReadPiece,
  };
  return source;
}

async function decoded(coding: string, source: ReadPiece): Promise<string> {
  const decoder = new ContentDecoder(coding);
  const chars = new TextDecoder();
  let text = "";
  for (;;) {
    const piece = await decoder.read(source);
    if (piece === null) return text + chars.decode();
    text += chars.decode(piece, { stream: true });
  }
}

const CASES = [
  { name: "gzip", coding: "gzip", bytes: gzipSync(TEXT) },
  { name: "gzip by its old name", coding: "x-gzip", bytes: gzipSync(TEXT) },
  { name: "deflate", coding: "deflate", bytes: deflateSync(TEXT) },
  { name: "bare deflate", coding: "deflate", bytes: deflateRawSync(TEXT) },
  { name: "brotli", coding: "br", bytes: brotliCompressSync(TEXT) },
  { name: "zstd", coding: "zstd", bytes: zstdCompressSync(TEXT) },
];

for (const { name, coding, bytes } of CASES) {
  Deno.test(`ContentDecoder decodes ${name}, however it is cut`, async () => {
    for (const size of [1, 7, bytes.length]) {
      const { read } = sourceOf(bytes, size);
      assert.equal(await decoded(coding, read), TEXT, `pieces of ${size}`);
    }
  });
}

Deno.test("ContentDecoder passes on what a server has flushed, before the body ends", async () => {
  // The first block of a body that goes on.
  const whole = new Blob(["data: 1\n\n"]).stream();
  const gzip = new Uint8Array(
    await new Response(whole.pipeThrough(new CompressionStream("gzip")))
      .arrayBuffer(),
  );
  const decoder = new ContentDecoder("gzip");
  let reads = 0;
  const first = await decoder.read(() => {
    reads += 1;
    // Without its checksum and length.
    return Promise.resolve(gzip.subarray(0, -8));
  });
  assert.equal(new TextDecoder().decode(first ?? undefined), "data: 1\n\n");
  assert.equal(reads, 1);
  decoder.close();
});

Deno.test("API4: ContentDecoder makes little more of a bomb than its reader takes", async () => {
  const bomb = gzipSync(new Uint8Array(256 * MIB));
  const decoder = new ContentDecoder("gzip");
  const source = sourceOf(bomb, 16 * 1024);
  const before = Deno.memoryUsage().rss;
  for (let bytes = 0; bytes < MIB;) {
    bytes += (await decoder.read(source.read))?.length ?? assert.fail("ended");
  }
  assert.equal(source.bytesRead, 16 * 1024);
  assert.ok(Deno.memoryUsage().rss - before < 64 * MIB);
  decoder.close();
  assert.equal(await decoder.read(source.read), null);
});

const FAULTS = [
  {
    name: "a coding that is not known",
    coding: "compress",
    bytes: gzipSync(TEXT),
    fault: "invalid",
  },
  {
    name: "two codings",
    coding: "gzip, br",
    bytes: gzipSync(TEXT),
    fault: "invalid",
  },
  {
    name: "plain text under another label",
    coding: "gzip",
    bytes: new TextEncoder().encode(TEXT),
    fault: "invalid",
  },
  {
    name: "a body that is cut",
    coding: "gzip",
    bytes: gzipSync(TEXT).subarray(0, -20),
    fault: "truncated",
  },
];

for (const { name, coding, bytes, fault } of FAULTS) {
  Deno.test(`ContentDecoder rejects ${name}`, async () => {
    const { read } = sourceOf(bytes, 10);
    await assert.rejects(decoded(coding, read), { fault });
  });
}

Deno.test("ContentDecoder takes an empty body for empty", async () => {
  assert.equal(await decoded("gzip", () => Promise.resolve(null)), "");
});
