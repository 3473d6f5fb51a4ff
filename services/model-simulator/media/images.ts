/** `POST /v1/images/generations` and `/v1/images/edits`. */
import { fieldError } from "@gateway/shared/openai/error";
import { imageEditForm } from "@gateway/shared/openai/media";
import { wallNow } from "@gateway/shared/process/clock";
import { z } from "zod";
import { hashText, tokenize } from "../chat/language.ts";
import {
  eventAnswer,
  eventText,
  type Planned,
  wholeAnswer,
} from "../serving/answer.ts";
import { readControls, withoutControls } from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";
import { pictureOf } from "./picture.ts";

const SIZE_DEFAULT = "1024x1024";
const SIDE_MIN = 16;
const SIDE_MAX = 3_840;
/** A token of usage is a square of this side. */
const TOKEN_SIDE = 32;

/** The only values that clients of typed languages know; all pictures are as plain. */
const QUALITIES = /^(low|medium|high)$/;

/** An image in a form: the gateway sends images in no other way. */
export const photoField = z.instanceof(File);
const generation = imageEditForm.extend({
  size: z.string().default("auto").transform(sizeOf),
  output_format: z.enum(["png"]).optional(),
});
const edit = generation.extend({
  image: z.preprocess((value) => [value].flat(), z.array(photoField)),
});

/** Plans new images. Throws an `ApiError` for an invalid request. */
export function generations(received: Received): Planned {
  const request = readMedia("image", generation, received);
  return planned(request, "image_generation", "");
}

/**
 * Plans images that depend on the first one of the request. Rejects with an `ApiError`
 * for an invalid request.
 */
export async function edits(received: Received): Promise<Planned> {
  const { image, ...request } = readMedia("image", edit, received);
  const [photo = ""] = await Promise.all(image.map(photoOf));
  return planned(request, "image_edit", photo);
}

/** Tells an image from others. */
export const photoOf = async (file: File): Promise<string> =>
  String(hashText((await file.bytes()).toBase64()));

/**
 * Width and height of a text such as `1024x1024` or `auto`. Throws an `ApiError` for
 * any other text.
 */
export function sizeOf(text: string): { width: number; height: number } {
  const size = text === "auto" ? SIZE_DEFAULT : text;
  const found = /^(\d{1,4})x(\d{1,4})$/.exec(size) ?? [];
  const [, width = 0, height = 0] = found.map(Number);
  const isLarge = Math.min(width, height) >= SIDE_MIN;
  if (isLarge && Math.max(width, height) <= SIDE_MAX) return { width, height };
  const sides = `a width and a height from ${SIDE_MIN} to ${SIDE_MAX}`;
  const message = `Invalid 'size': expected ${sides}, like '${SIZE_DEFAULT}'.`;
  throw fieldError("invalid_value", "size", message);
}

/** `photo` tells the image that is edited from others; empty for a new one. */
function planned(
  request: z.output<typeof generation>,
  event: string,
  photo: string,
): Planned {
  const { n, prompt, size, stream, partial_images = 0 } = request;
  const quality = String(request.quality);
  const scene = { ...size, words: withoutControls(prompt) };
  const controls = readControls(prompt, "prompt");
  const draft = (nth: number, finished = 1) => {
    const png = pictureOf({ ...scene, seed: `${photo}-${nth}`, finished });
    return { b64_json: png.toBase64() };
  };
  const shape = {
    background: "opaque",
    output_format: "png",
    quality: QUALITIES.test(quality) ? quality : "low",
    size: `${size.width}x${size.height}`,
  };
  const time = Math.floor(wallNow() / 1_000);
  const pictureTokens = Math.ceil(size.width * size.height / TOKEN_SIDE ** 2);
  const text_tokens = tokenize(prompt).length;
  const image_tokens = photo === "" ? 0 : pictureTokens;
  const input_tokens = text_tokens + image_tokens;
  const usage = (pictures: number) => {
    const output_tokens = pictures * pictureTokens;
    const total_tokens = input_tokens + output_tokens;
    const input_tokens_details = { text_tokens, image_tokens };
    const counts = { input_tokens, input_tokens_details, output_tokens };
    return controls.isUsageMissing
      ? {}
      : { usage: { ...counts, total_tokens } };
  };
  if (!stream) {
    const data: object[] = [];
    const pictures = numbers(n).map((nth) => data.push(draft(nth)));
    const whole = { created: time, data, ...shape, ...usage(n) };
    return wholeAnswer(controls, {
      pieces: pictures,
      end: () => JSON.stringify(whole),
    });
  }
  const rounds = partial_images + 1;
  const events = numbers(n * rounds).map((step) => {
    const partial_image_index = step % rounds;
    const finished = (partial_image_index + 1) / rounds;
    const [name, more] = finished === 1
      ? ["completed", usage(1)] as const
      : ["partial_image", { partial_image_index }] as const;
    return eventText(`${event}.${name}`, {
      ...draft(Math.floor(step / rounds), finished),
      created_at: time,
      ...shape,
      ...more,
    });
  });
  return eventAnswer(controls, events);
}

/** The numbers from 0 to `length - 1`. */
export const numbers = (length: number) => Array.from({ length }).keys();
