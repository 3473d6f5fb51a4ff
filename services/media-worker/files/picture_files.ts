/**
 * The images that clients send with requests, checked before a model server gets them.
 */
import type { UploadedFile } from "@gateway/shared/bus/job";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { ImageRequest } from "@gateway/shared/openai/media";
import type { ErrorCode } from "@gateway/shared/openai/error";
import { UpstreamError } from "@gateway/shared/upstream/http/errors";
import { kindOf, namedByContent } from "./file_types.ts";

const { imagePixelsMax, maskBytesMax } = MEDIA_LIMITS;

/** A file that is a picture. */
interface Picture {
  file: UploadedFile;
  /** The client's name of its field. */
  param: string;
  /** Such as `1024x768`. */
  size: string;
}

/**
 * The images to edit, then the mask, uploaded or within the JSON, with the types that
 * they really have. Throws an `UpstreamError` that blames the request for a wrong one.
 */
export function pictureFiles(
  { images, mask }: ImageRequest,
  uploaded: readonly UploadedFile[],
): UploadedFile[] {
  const filesOf = (field: string) =>
    uploaded.filter((file) => file.field === field);
  const isOne = filesOf("image").length === 1;
  const edited = images === undefined
    ? filesOf("image").map((file, index) =>
      pictureOf(file, isOne ? "image" : `image[${index}]`)
    )
    : images.map((url, index) =>
      pictureWithin(url, "image", `images[${index}]`)
    );
  const masks = images === undefined
    ? filesOf("mask").map((file) => pictureOf(file, "mask"))
    : mask === undefined
    ? []
    : [pictureWithin(mask, "mask", "mask")];
  for (const mask of masks) requireMask(mask, edited[0]);
  return [
    ...edited.map(({ file }) => file),
    ...masks.map(({ file }) => file),
    ...othersIn(uploaded, ["image", "mask"]),
  ];
}

/** The image that a video starts with, if there is one, checked in the same way. */
export function referenceFiles(
  imageUrl: string | undefined,
  uploaded: readonly UploadedFile[],
): UploadedFile[] {
  const param = "input_reference";
  const pictures = imageUrl === undefined
    ? uploaded.filter(({ field }) => field === param)
      .map((file) => pictureOf(file, param))
    : [pictureWithin(imageUrl, param, param)];
  return [...pictures.map(({ file }) => file), ...othersIn(uploaded, [param])];
}

/** Files that only the model server knows. Pictures are checked like the others. */
function othersIn(
  uploaded: readonly UploadedFile[],
  fieldNames: readonly string[],
): UploadedFile[] {
  return uploaded.filter(({ field }) => !fieldNames.includes(field)).map(
    (file) => {
      const isPicture = kindOf(file.content)?.type.startsWith("image/");
      return isPicture
        ? pictureOf(file, file.field).file
        : namedByContent(file);
    },
  );
}

function pictureWithin(url: string, field: string, path: string): Picture {
  const param = `${path}.image_url`;
  let content: Uint8Array;
  try {
    content = Uint8Array.fromBase64(url.slice(url.indexOf(",") + 1));
  } catch {
    throw fault(param, "expected an image in base64");
  }
  return pictureOf({ field, name: "", type: "", content }, param);
}

/** Reads a file as a picture, which gets its real type. */
function pictureOf(
  { field, name, content }: UploadedFile,
  param: string,
): Picture {
  const head = pictureHead(content);
  if (head === null) {
    throw fault(param, "expected a PNG, JPEG, WebP or GIF file");
  }
  const { type, width, height } = head;
  if (width * height > imagePixelsMax) {
    const most = `${imagePixelsMax / 1e6} million pixels`;
    throw fault(param, `expected at most ${most}, but got ${width}x${height}`);
  }
  const file = namedByContent({ field, name, type, content });
  return { file, param, size: `${width}x${height}` };
}

function requireMask(mask: Picture, picture: Picture | undefined): void {
  const { file: { type, content }, param, size } = mask;
  if (content.length > maskBytesMax) {
    const most = `expected at most ${maskBytesMax} bytes`;
    throw fault(param, most, "request_too_large");
  }
  if (type !== "image/png") throw fault(param, "expected a PNG file");
  if (size === picture?.size) return;
  const needed = `expected the size of the image, ${picture?.size}`;
  throw fault(param, `${needed}, but got ${size}`);
}

/** Every model server would refuse the request. */
function fault(
  param: string,
  expected: string,
  code: ErrorCode = "invalid_value",
): UpstreamError {
  const message = `Invalid '${param}': ${expected}.`;
  return new UpstreamError("request", { code, param, message });
}

interface PictureHead {
  type: "image/png" | "image/jpeg" | "image/webp" | "image/gif";
  width: number;
  height: number;
}

/** Reads type and size of a PNG, JPEG, WebP or GIF file; null for anything else. */
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
  if (textAt(0, 4) === "GIF8" && bytes.length >= 10) {
    const [width, height] = [view.getUint16(6, true), view.getUint16(8, true)];
    return sized({ type: "image/gif", width, height });
  }
  return textAt(0, 3) === "\xff\xd8\xff" ? jpegHead(view) : null;
}

const sized = (head: PictureHead) =>
  head.width > 0 && head.height > 0 ? head : null;

/** Reads the head by the kind of the first chunk: lossy, lossless or extended. */
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

/**
 * Markers of JPEG that are not followed by a length, and those of the start of a frame.
 */
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
