/** Good requests for media, which tests change. */

/** A request for speech. */
export const speech = {
  model: "simulated-speech-1",
  voice: "alloy",
  input: "The river is wide.",
};
/** A request for a picture. */
export const image = {
  model: "simulated-image-1",
  prompt: "A red fox",
  size: "96x64",
};
/** The fields of a request for a transcription, besides its file. */
export const text = { model: "simulated-transcription-1" };
/** A job that is ready at once. */
export const video = {
  model: "simulated-video-1",
  size: "96x64",
  prompt: "A fox [simulator: video takes 0 s]",
};
