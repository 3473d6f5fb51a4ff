// One gateway for all media, because its start costs more than most of what is tested.
// The promises are in the files of the checks.
import { startGateway } from "../../support/gateway/gateway.ts";
import { checkSpeechAndPictures } from "./speech_and_picture_checks.ts";
import { checkUploads } from "./upload_checks.ts";
import { checkVideos } from "./video_checks.ts";

Deno.test("media pass through the gateway as they do with OpenAI", async (t) => {
  await using gateway = await startGateway("launched", { edges: 2 });

  await t.step(
    "OpenAI's SDK speaks, draws and transcribes",
    (t) => checkSpeechAndPictures(t, gateway),
  );

  await t.step(
    "OpenAI's SDK makes videos",
    (t) => checkVideos(t, gateway),
  );

  // Last, because it kills the worker.
  await t.step(
    "uploads are streamed, and end with their clients or workers",
    (t) => checkUploads(t, gateway),
  );
});
