/** The endpoints that media workers run. */
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type {
  ImageRequest,
  SpeechRequest,
  TranscriptionRequest,
} from "@gateway/shared/openai/media";
import { costsOnly } from "../limits/cost.ts";
import type { Endpoint, UploadEndpoint } from "../requests/endpoint.ts";
import { RecordingMeter } from "./recording/recording_meter.ts";
import { answerAsMade } from "./relay.ts";
import * as requests from "./requests.ts";

/** `POST /v1/audio/speech`, which costs the characters of its text. */
export const SPEECH: Endpoint<SpeechRequest> = {
  kind: "speech",
  parse: requests.readSpeech,
  estimate: ({ input }) => costsOnly("characters", [...input].length),
  answer: answerAsMade,
};

/** `POST /v1/images/generations`, which costs the images. */
export const IMAGE: Endpoint<ImageRequest> = {
  kind: "image",
  parse: requests.readImage,
  estimate: ({ count }) => costsOnly("images", count),
  answer: answerAsMade,
};
/** `POST /v1/images/edits` with JSON. */
export const IMAGE_EDIT: Endpoint<ImageRequest> = {
  ...IMAGE,
  parse: requests.readImageEdit,
};
/** `POST /v1/images/edits` with a form. */
export const IMAGE_EDIT_UPLOAD: UploadEndpoint<ImageRequest> = {
  ...IMAGE,
  parse: requests.readImageEditForm,
  form: {
    files: { image: [1, MEDIA_LIMITS.editedImagesMax], mask: [0, 1] },
    fileBytesMax: requests.FILE_BYTES_MAX.image,
  },
  least: costsOnly("images", 1),
};

const fromRecording = (
  task: TranscriptionRequest["task"],
): UploadEndpoint<TranscriptionRequest> => ({
  kind: "transcription",
  parse: (form, models) => requests.readTranscription(form, models, task),
  // The length of the recording is not known before it has been read.
  estimate: () => costsOnly("audioSeconds"),
  answer: answerAsMade,
  form: {
    files: { file: [1, 1] },
    fileBytesMax: requests.FILE_BYTES_MAX.recording,
  },
  least: costsOnly("audioSeconds"),
  meter: (catalog) =>
    catalog.values().some(({ kind, prices }) =>
        kind === "transcription" && prices?.second !== undefined
      )
      ? new RecordingMeter()
      : null,
});
/** `POST /v1/audio/transcriptions`, which costs the seconds of the recording. */
export const TRANSCRIPTION = fromRecording("transcribe");
/** `POST /v1/audio/translations`, which costs the same. */
export const TRANSLATION = fromRecording("translate");
