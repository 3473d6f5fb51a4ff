/** Which media a model takes, in the parts of messages. */
import type { Medium, ModelConfig } from "@gateway/shared/models/catalog";
import { type ApiError, fieldError } from "@gateway/shared/openai/error";

/** The medium of each type of part that has one; other types pass. */
export const MEDIUM_OF_PART: ReadonlyMap<string, Medium> = new Map([
  ["image_url", "image"],
  ["input_image", "image"],
  ["input_audio", "audio"],
  ["audio_url", "audio"],
  ["video_url", "video"],
  ["video", "video"],
  ["file", "file"],
  ["input_file", "file"],
]);

/** The `ApiError` for a part of a medium that its model does not take. */
export function notAccepted(
  { type, medium, path }: { type: string; medium: Medium; path: string },
  { id }: ModelConfig,
): ApiError {
  return fieldError(
    "unsupported_value",
    `${path}.type`,
    `The model '${id}' does not accept parts of type '${type}'. ` +
      `If its server does, the operator adds '${medium}' to the model's ` +
      "'accepts'.",
  );
}
