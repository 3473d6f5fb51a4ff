/** The images that clients send with requests, checked before a model server gets them. */
import type { UploadedFile } from "@gateway/shared/bus/job";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { ImageRequest } from "@gateway/shared/openai/media";
import type { ErrorCode } from "@gateway/shared/openai/error";
import { pictureHead } from "@gateway/shared/openai/picture";
import { UpstreamError } from "@gateway/shared/upstream/errors";

const { imagePixelsMax, maskBytesMax } = MEDIA_LIMITS;

type Picture = ReturnType<typeof checked>;

/**
 * The images to edit, then the mask, uploaded or within the JSON, with the types that they
 * really have. Throws an `UpstreamError` that blames the request for a wrong one.
 */
export function pictureFiles(
  { images, mask }: ImageRequest,
  uploaded: readonly UploadedFile[],
): UploadedFile[] {
  const of = (field: string) => uploaded.filter((file) => file.field === field);
  const isOne = of("image").length === 1;
  const edited = images === undefined
    ? of("image").map((file, index) =>
      checked(file, isOne ? "image" : `image[${index}]`)
    )
    : images.map(({ image_url }, index) =>
      pictureWithin(image_url, "image", `images[${index}]`)
    );
  const masks = images === undefined
    ? of("mask").map((file) => checked(file, "mask"))
    : mask === undefined
    ? []
    : [pictureWithin(mask.image_url, "mask", "mask")];
  for (const mask of masks) requireMask(mask, edited[0]);
  return [...edited, ...masks].map(({ file }) => file);
}

/** The image that a video starts with, if there is one, checked in the same way. */
export function referenceFiles(
  imageUrl: string | undefined,
  uploaded: readonly UploadedFile[],
): UploadedFile[] {
  const param = "input_reference";
  const sent = imageUrl === undefined
    ? uploaded.map((file) => checked(file, param))
    : [pictureWithin(imageUrl, param, param)];
  return sent.map(({ file }) => file);
}

function pictureWithin(url: string, field: string, path: string): Picture {
  const param = `${path}.image_url`;
  let content: Uint8Array;
  try {
    content = Uint8Array.fromBase64(url.slice(url.indexOf(",") + 1));
  } catch {
    throw fault(param, "expected an image in base64");
  }
  return checked({ field, name: "", type: "", content }, param);
}

/** A file with its real type; `param` is the client's name of its field. */
function checked({ field, name, content }: UploadedFile, param: string) {
  const head = pictureHead(content);
  if (head === null) throw fault(param, "expected a PNG, JPEG or WebP file");
  const { type, width, height } = head;
  if (width * height > imagePixelsMax) {
    const most = `${imagePixelsMax / 1e6} million pixels`;
    throw fault(param, `expected at most ${most}, but got ${width}x${height}`);
  }
  const given = name || `${field}.${type.slice("image/".length)}`;
  const file: UploadedFile = { field, name: given, type, content };
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
