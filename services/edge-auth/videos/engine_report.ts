/** What workers report of videos. */
import { parsePayload } from "@gateway/shared/bus/stream/frame";
import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import { ApiError } from "@gateway/shared/openai/error";
import {
  type EngineVideo,
  engineVideoSchema,
} from "@gateway/shared/openai/media";

/**
 * A worker's report on a video; null if it has none, as for a deleted one. Throws the
 * error of a failed run.
 */
export function engineVideoIn(
  result: Uint8Array | ApiError,
): EngineVideo | null {
  if (result instanceof ApiError) throw result;
  const read = new MediaHeadReader().push(result);
  const isRead = read !== null && read !== "invalid";
  return isRead ? parsePayload(engineVideoSchema, read.rest) : null;
}
