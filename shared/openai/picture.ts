/** What the header of an image file says. */
export interface PictureHead {
  type: "image/png" | "image/jpeg" | "image/webp";
  width: number;
  height: number;
}

/** Reads type and size of a PNG, JPEG or WebP file; null for anything else. */
export function pictureHead(bytes: Uint8Array): PictureHead | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const textAt = (at: number, length: number) =>
    String.fromCharCode(...bytes.subarray(at, at + length));
  if (textAt(0, 8) === "\x89PNG\r\n\x1a\n" && bytes.length >= 24) {
    const [width, height] = [view.getUint32(16), view.getUint32(20)];
    return sized({ type: "image/png", width, height });
  }
  if (textAt(0, 4) === "RIFF" && textAt(8, 4) === "WEBP") {
    return bytes.length < 30 ? null : webpHead(view, textAt(12, 4));
  }
  return textAt(0, 3) === "\xff\xd8\xff" ? jpegHead(view) : null;
}

const sized = (head: PictureHead) =>
  head.width > 0 && head.height > 0 ? head : null;

/** By the kind of its first chunk: lossy, lossless or extended. */
function webpHead(view: DataView, chunk: string): PictureHead | null {
  const type = "image/webp";
  const u16 = (at: number) => view.getUint16(at, true);
  if (chunk === "VP8 ") {
    return sized({ type, width: u16(26) & 0x3fff, height: u16(28) & 0x3fff });
  }
  if (chunk === "VP8L") {
    const bits = view.getUint32(21, true);
    const [width, height] = [(bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1];
    return { type, width, height };
  }
  if (chunk !== "VP8X") return null;
  const u24 = (at: number) => u16(at) + (view.getUint8(at + 2) << 16);
  return { type, width: u24(24) + 1, height: u24(27) + 1 };
}

/** Markers of JPEG that are not followed by a length, and those of the start of a frame. */
const isAlone = (marker: number) => marker >= 0xd0 && marker <= 0xd8;
const isFrame = (marker: number) =>
  marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);

function jpegHead(view: DataView): PictureHead | null {
  for (let at = 2; at + 9 <= view.byteLength;) {
    if (view.getUint8(at) !== 0xff) return null;
    const marker = view.getUint8(at + 1);
    if (isFrame(marker)) {
      const [height, width] = [view.getUint16(at + 5), view.getUint16(at + 7)];
      return sized({ type: "image/jpeg", width, height });
    }
    // 0xff may be repeated before a marker.
    if (marker === 0xff) at += 1;
    else at += isAlone(marker) ? 2 : 2 + view.getUint16(at + 2);
  }
  return null;
}
