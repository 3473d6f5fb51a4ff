/** `POST /v1/images/generations` and `/v1/images/edits`. */
import { Buffer } from "node:buffer";
import { pictureHead } from "@gateway/shared/openai/picture";
import { wallNow } from "@gateway/shared/process/clock";
import * as z from "zod";
import { tokenize } from "../chat/language.ts";
import { readControls, withoutControls } from "../serving/controls.ts";
import { HttpError } from "../serving/errors.ts";
import { flag, readMedia, type Received } from "../serving/fields.ts";
import * as run from "../serving/run.ts";
import type { Scene } from "./picture.ts";
import type { Studio } from "./studio.ts";

const IMAGES_MAX = 16;
/** A small file can decode to a huge image. Above the largest that is drawn, and those of most cameras. */
const PIXELS_MAX = 20_000_000;
const SIZE_DEFAULT = "1024x1024";
const SIDE_MIN = 16;
const SIDE_MAX = 3_840;
/** A token of usage is a square of this side. */
const TOKEN_SIDE = 32;

const count = (min: number, max: number) =>
  z.coerce.number().pipe(z.int().min(min).max(max));

/** The text of a request for an image. */
export const promptField = z.string().min(1).max(32_000);
/** A file of a form, or what JSON has instead: the `data:` URL of one. */
export const photoField = z.union([
  z.instanceof(File),
  z.object({ image_url: z.string() }).transform((given) => given.image_url),
]);
const photos = z.preprocess(
  (value) => Array.isArray(value) ? value : [value],
  z.array(photoField).min(1).max(IMAGES_MAX),
);
const generation = z.object({
  prompt: promptField,
  n: count(1, 10).default(1),
  size: z.string().default("auto").transform(sizeOf),
  quality: z.string().default("auto"),
  response_format: z.enum(["b64_json"]).optional(),
  output_format: z.enum(["png"]).optional(),
  stream: flag,
  partial_images: count(0, 3).default(0),
});
const formEdit = generation.extend({ image: photos });
const jsonEdit = generation.extend({ images: photos })
  .transform(({ images, ...rest }) => ({ ...rest, image: images }));

type ImageRequest = z.output<typeof generation>;

/** Plans new images. Throws an `HttpError` for an invalid request. */
export function generations(
  received: Received,
  studio: Studio,
): run.Planned {
  const request = readMedia("image", generation, received);
  return planned(request, "image_generation", studio);
}

/** Plans images that show the first given one. Rejects with an `HttpError` for an invalid request. */
export async function edits(
  received: Received,
  studio: Studio,
): Promise<run.Planned> {
  const schema = received.form === undefined ? jsonEdit : formEdit;
  const { image, ...request } = readMedia("image", schema, received);
  const [photo = ""] = await Promise.all(image.map(photoOf));
  return planned(request, "image_edit", studio, { photo });
}

/** An image as a `data:` URL. Rejects with an `HttpError` for anything else. */
export async function photoOf(given: File | string): Promise<string> {
  const bytes = typeof given === "string"
    ? Buffer.from(given.slice(given.indexOf(",") + 1), "base64")
    : Buffer.from(await given.arrayBuffer());
  const head = pictureHead(bytes);
  const isKnown = head !== null && head.type !== "image/webp";
  if (isKnown && head.width * head.height <= PIXELS_MAX) {
    return `data:${head.type};base64,${bytes.toString("base64")}`;
  }
  const message =
    "Invalid image: expected a PNG or JPEG file of at most 20 million pixels, or its data: URL.";
  throw new HttpError(message, { param: "image" });
}

/** Width and height of a text such as `1024x1024` or `auto`. Throws an `HttpError` for any other text. */
export function sizeOf(text: string): { width: number; height: number } {
  const size = text === "auto" ? SIZE_DEFAULT : text;
  const found = /^(\d{1,4})x(\d{1,4})$/.exec(size) ?? [];
  const [, width = 0, height = 0] = found.map(Number);
  const isLarge = Math.min(width, height) >= SIDE_MIN;
  if (isLarge && Math.max(width, height) <= SIDE_MAX) return { width, height };
  const sides = `a width and a height from ${SIDE_MIN} to ${SIDE_MAX}`;
  const message = `Invalid 'size': expected ${sides}, like '${SIZE_DEFAULT}'.`;
  throw new HttpError(message, { param: "size" });
}

const seconds = () => Math.floor(wallNow() / 1_000);
const numbers = (length: number) => Array.from({ length }).keys();

function planned(
  request: ImageRequest,
  event: string,
  studio: Studio,
  photo: Pick<Scene, "photo"> = {},
): run.Planned {
  const { n, quality, size, partial_images: partials } = request;
  const scene = { ...size, ...photo, words: withoutControls(request.prompt) };
  const controls = readControls(request.prompt, "prompt");
  const draft = async (seed: number, finished = 1) => {
    const png = await studio.picture({ ...scene, seed, finished });
    return { b64_json: png.toBase64() };
  };
  const shape = {
    ...{ background: "opaque", output_format: "png", quality },
    size: `${scene.width}x${scene.height}`,
  };
  const usage = (pictures: number) =>
    controls.isUsageMissing ? {} : { usage: usageOf(request, scene, pictures) };
  return {
    controls,
    answer: (pacing) => {
      if (!request.stream) {
        const data: object[] = [];
        const pictures = numbers(n)
          .map(async (seed) => data.push(await draft(seed)));
        const whole = { created: seconds(), data, ...shape, ...usage(n) };
        return run.wholeAnswer(pacing, pictures, () => JSON.stringify(whole));
      }
      const rounds = partials + 1;
      const events = numbers(n * rounds).map(async (step) => {
        const partial_image_index = step % rounds;
        const finished = (partial_image_index + 1) / rounds;
        const picture = await draft(Math.floor(step / rounds), finished);
        const members = { ...picture, created_at: seconds(), ...shape };
        const [name, more] = finished === 1
          ? ["completed", usage(1)] as const
          : ["partial_image", { partial_image_index }] as const;
        return run.eventText(`${event}.${name}`, { ...members, ...more });
      });
      return run.eventAnswer(pacing, pacing.run(events));
    },
  };
}

function usageOf({ prompt }: ImageRequest, scene: Scene, pictures: number) {
  const pictureTokens = Math.ceil(scene.width * scene.height / TOKEN_SIDE ** 2);
  const text_tokens = tokenize(prompt).length;
  const image_tokens = scene.photo === undefined ? 0 : pictureTokens;
  const input_tokens = text_tokens + image_tokens;
  const output_tokens = pictures * pictureTokens;
  return {
    input_tokens,
    input_tokens_details: { text_tokens, image_tokens },
    output_tokens,
    total_tokens: input_tokens + output_tokens,
  };
}
