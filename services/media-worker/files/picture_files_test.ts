// What clients send to be edited: hostile files among them.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { ImageRequest } from "@gateway/shared/openai/media";
import { IMAGE } from "../server_fixture.ts";
import { pictureFiles, pictureHead } from "./picture_files.ts";

const latin = (text: string) => Buffer.from(text, "latin1");
const u32 = (...values: number[]) =>
  Buffer.concat(values.map((value) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value);
    return bytes;
  }));

/** A PNG file, or what a decoder reads of it before it begins to fill its memory. */
function png(width: number, height: number, more = 0): Buffer {
  const signature = latin("\x89PNG\r\n\x1a\n");
  const head = [signature, u32(13), latin("IHDR"), u32(width, height)];
  return Buffer.concat([...head, Buffer.alloc(more)]);
}
const webp = (chunk: string, bytes: number[]) =>
  Buffer.concat([
    latin(`RIFF\0\0\0\0WEBP${chunk}\0\0\0\0`),
    Buffer.from(bytes),
    Buffer.alloc(16),
  ]);
function gif(width: number, height: number): Buffer {
  const head = Buffer.from("GIF89a\0\0\0\0", "latin1");
  head.writeUInt16LE(width, 6);
  head.writeUInt16LE(height, 8);
  return head;
}
const LOSSY = [0, 0, 0, 0x9d, 1, 0x2a, 44, 1, 1, 2];
const EXTENDED = [0, 0, 0, 0, 43, 1, 0, 0, 2, 0];
/** With a comment and a table before its frame. */
const jpeg = (frame: number, size: number[]) =>
  Buffer.from([
    0xff,
    0xd8,
    0xff,
    0xff,
    0xfe,
    0,
    4,
    1,
    2,
    0xff,
    0xc4,
    0,
    2,
    0xff,
    frame,
    0,
    17,
    8,
    ...size,
    3,
  ]);

Deno.test("pictureHead() reads type and size of PNG, JPEG, WebP and GIF", () => {
  const size = { width: 300, height: 513 };
  const rows: { name: string; bytes: Buffer; type: string }[] = [
    { name: "PNG", bytes: png(300, 513), type: "image/png" },
    { name: "GIF", bytes: gif(300, 513), type: "image/gif" },
    { name: "JPEG", bytes: jpeg(0xc0, [2, 1, 1, 44]), type: "image/jpeg" },
    {
      name: "progressive JPEG",
      bytes: jpeg(0xc2, [2, 1, 1, 44]),
      type: "image/jpeg",
    },
    { name: "lossy WebP", bytes: webp("VP8 ", LOSSY), type: "image/webp" },
    {
      name: "lossless WebP",
      bytes: webp("VP8L", [0x2f, 0x2b, 1, 0x80, 0]),
      type: "image/webp",
    },
    {
      name: "extended WebP",
      bytes: webp("VP8X", EXTENDED),
      type: "image/webp",
    },
  ];
  for (const { name, bytes, type } of rows) {
    assert.deepEqual(pictureHead(bytes), { type, ...size }, name);
    // Cut anywhere it is no picture, and nothing throws.
    for (let end = 0; end < bytes.length; end++) {
      const head = pictureHead(bytes.subarray(0, end));
      assert.ok(head === null || head.width === size.width, `${name} ${end}`);
    }
  }
  const others: Buffer[] = [
    latin("<svg/>"),
    png(0, 5),
    webp("JUNK", []),
    jpeg(0xc0, [0, 0, 0, 0]),
    jpeg(0xda, [2, 1, 1, 44]),
    Buffer.from([0xff, 0xd8, ...Array<number>(5_000).fill(0xff)]),
  ];
  for (const bytes of others) assert.equal(pictureHead(bytes), null);
});

const file = (content: Uint8Array, field = "image", type = "text/plain") => (
  { field, name: "", type, content }
);
const url = (content: Uint8Array): string =>
  `data:image/png;base64,${content.toBase64()}`;
const edit = (change: Partial<ImageRequest> = {}): ImageRequest => (
  { ...IMAGE, task: "edit", ...change }
);

Deno.test("pictures have the types of their content, from a form and from JSON", () => {
  const [picture, photo] = [png(64, 32), jpeg(0xc0, [0, 32, 0, 64])];
  const expected = [
    { field: "image", name: "image.png", type: "image/png", content: picture },
    { field: "image", name: "image.jpg", type: "image/jpeg", content: photo },
    { field: "mask", name: "mask.png", type: "image/png", content: picture },
  ];
  const uploaded = [file(picture, "mask"), file(picture), file(photo)];
  assert.deepEqual(pictureFiles(edit(), uploaded), expected);
  const images = [url(picture), url(photo)];
  const within = pictureFiles(edit({ images, mask: url(picture) }), []);
  const bytes = within.map((each) => (
    { ...each, content: Buffer.from(each.content) }
  ));
  assert.deepEqual(bytes, expected);
});

/** How a picture is refused. */
interface Refused {
  readonly status: number;
  readonly param: string;
  readonly message: RegExp;
}

const malformed = (param: string, message: RegExp): Refused => (
  { status: 400, param, message }
);
const FORMATS = /PNG, JPEG, WebP or GIF/;

/** Requests with pictures, and how they are refused; absent: they are not. */
function pictureRows(): { run: () => unknown; refused?: Refused }[] {
  const good = png(1_000, 1_000);
  const most = MEDIA_LIMITS.imagePixelsMax / 1_000;
  const { maskBytesMax } = MEDIA_LIMITS;
  const withMask = (mask: Buffer) => () =>
    pictureFiles(edit(), [file(good), file(mask, "mask")]);
  const withImages = (...images: Buffer[]) => () =>
    pictureFiles(edit(), images.map((each) => file(each)));
  const within = (images: string[], mask?: string) => () =>
    pictureFiles(edit({ images, ...mask && { mask } }), []);
  return [
    { run: withImages(png(1_000, most)) },
    {
      run: withImages(png(1_000, most + 1)),
      refused: malformed("image", /50 million/),
    },
    {
      run: withImages(png(2 ** 32 - 1, 2 ** 32 - 1)),
      refused: malformed("image", /pixels/),
    },
    {
      run: withImages(good, latin("GIF89a")),
      refused: malformed("image[1]", FORMATS),
    },
    {
      run: withImages(Buffer.alloc(0)),
      refused: malformed("image", FORMATS),
    },
    { run: withMask(png(1_000, 1_000, maskBytesMax - 24)) },
    {
      run: withMask(png(1_000, 1_000, maskBytesMax - 23)),
      refused: { status: 413, param: "mask", message: /bytes/ },
    },
    {
      run: withMask(png(1_000, 999)),
      refused: malformed("mask", /1000x1000, but got 1000x999/),
    },
    {
      run: withMask(jpeg(0xc0, [3, 232, 3, 232])),
      refused: malformed("mask", /PNG file/),
    },
    {
      run: withMask(latin("x")),
      refused: malformed("mask", FORMATS),
    },
    {
      run: within([url(good), url(latin("x"))]),
      refused: malformed("images[1].image_url", FORMATS),
    },
    {
      run: within(["data:image/png;base64,*"]),
      refused: malformed("images[0].image_url", /base64/),
    },
    {
      run: within([url(good)], url(png(1, 1))),
      refused: malformed("mask.image_url", /size/),
    },
  ];
}

Deno.test("API4, API10: pictures that no engine should get are refused by name", () => {
  for (const { run, refused } of pictureRows()) {
    // No other worker and no other engine is tried.
    if (refused === undefined) run();
    else assert.throws(run, { remedy: "none", ...refused });
  }
});
