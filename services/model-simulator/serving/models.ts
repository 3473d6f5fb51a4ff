import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { HttpError } from "./errors.ts";

export const MODEL_IDS = {
  chat: DEFAULT_MODEL_ID,
  speech: "simulated-speech-1",
  image: "simulated-image-1",
  transcription: "simulated-transcription-1",
  video: "simulated-video-1",
} as const;

export type Kind = keyof typeof MODEL_IDS;

export const MODELS = Object.values(MODEL_IDS).map((id) => ({
  id,
  object: "model",
  created: 1_767_225_600,
  owned_by: "simulator",
}));

/** Throws an {@link HttpError} unless a request names the model of its kind. */
export function checkModel({ model }: { model: string }, kind: Kind): void {
  if (model === MODEL_IDS[kind]) return;
  const name = model.slice(0, 200);
  throw new HttpError(`The model \`${name}\` does not exist.`, {
    status: 404,
    param: "model",
    code: "model_not_found",
  });
}
