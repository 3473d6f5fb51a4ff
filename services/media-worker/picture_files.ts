/** The images that clients send with requests, checked before a model server gets them. */
import type { UploadedFile } from "@gateway/shared/bus/job";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type { ImageRequest } from "@gateway/shared/openai/media";
import type { ErrorCode } from "@gateway/shared/openai/error";
import { type PictureHead, pictureHead } from "@gateway/shared/openai/picture";
import { UpstreamError } from "@gateway/shared/upstream/errors";

/** A file, and the client's name of its field. */
interface Sent extends UploadedFile {
  param: string;
}

/**
 * The images of a request, uploaded or within its JSON, with the types that they really
 * have; first those to edit, then the mask. Throws an `UpstreamError` that blames the
 * request for a file that is not an image, one that would be huge, or a mask that does
 * not fit the first image.
 */
export function pictureFiles(
  request: ImageRequest,
  uploaded: readonly UploadedFile[],
): UploadedFile[] {
  const sent = request.images === undefined
    ? uploadedPictures(uploaded)
    : picturesWithin(request);
  const heads = sent.map(requirePicture);
  const [first] = heads;
  const at = sent.findIndex(({ field }) => field === "mask");
  const [mask, maskHead] = [sent[at], heads[at]];
  if (mask !== undefined) requireMask(mask, maskHead, first);
  return sent.map((file, index) => typed(file, heads[index]));
}

/** The image that a video starts with, if there is one, checked in the same way. */
export function referenceFiles(
  imageUrl: string | undefined,
  uploaded: readonly UploadedFile[],
): UploadedFile[] {
  const param = "input_reference";
  const sent = imageUrl === undefined
    ? uploaded.map((file) => ({ ...file, param }))
    : [pictureWithin(imageUrl, param, param)];
  return sent.map((file) => typed(file, requirePicture(file)));
}

function typed(
  { name, content, field }: Sent,
  head: PictureHead | undefined,
): UploadedFile {
  const type = head?.type ?? "";
  return {
    ...{ field, content, type },
    name: name || `${field}.${type.slice("image/".length)}`,
  };
}

function uploadedPictures(files: readonly UploadedFile[]): Sent[] {
  const images = files.filter(({ field }) => field === "image");
  const masks = files.filter(({ field }) => field === "mask");
  const paramOf = (index: number) =>
    images.length === 1 ? "image" : `image[${index}]`;
  return [
    ...images.map((file, index) => ({ ...file, param: paramOf(index) })),
    ...masks.map((file) => ({ ...file, param: "mask" })),
  ];
}

function pictureWithin(url: string, field: string, path: string): Sent {
  const param = `${path}.image_url`;
  const base64 = url.slice(url.indexOf(",") + 1);
  try {
    const content = Uint8Array.fromBase64(base64);
    return { field, name: "", type: "", content, param };
  } catch {
    throw fault(param, "expected an image in base64");
  }
}

function picturesWithin({ images = [], mask }: ImageRequest): Sent[] {
  return [
    ...images.map(({ image_url }, index) =>
      pictureWithin(image_url, "image", `images[${index}]`)
    ),
    ...mask === undefined
      ? []
      : [pictureWithin(mask.image_url, "mask", "mask")],
  ];
}

function requirePicture({ content, param }: Sent): PictureHead {
  const head = pictureHead(content);
  if (head === null) throw fault(param, "expected a PNG, JPEG or WebP file");
  const { width, height } = head;
  if (width * height <= MEDIA_LIMITS.imagePixelsMax) return head;
  const most = `${MEDIA_LIMITS.imagePixelsMax / 1e6} million pixels`;
  throw fault(param, `expected at most ${most}, but got ${width}x${height}`);
}

function requireMask(
  { content, param }: Sent,
  mask: PictureHead | undefined,
  picture: PictureHead | undefined,
): void {
  if (content.length > MEDIA_LIMITS.maskBytesMax) {
    const most = `expected at most ${MEDIA_LIMITS.maskBytesMax} bytes`;
    throw fault(param, most, "request_too_large");
  }
  if (mask?.type !== "image/png") throw fault(param, "expected a PNG file");
  if (mask.width === picture?.width && mask.height === picture.height) return;
  const size = `${picture?.width}x${picture?.height}`;
  const got = `${mask.width}x${mask.height}`;
  throw fault(
    param,
    `expected the size of the image,  ${size}, but got ${got}`,
  );
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
