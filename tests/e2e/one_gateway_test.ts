// One gateway as an operator starts it for all that needs nothing else of it, because
// its start costs more than most of what is tested. The promises are in the files of
// the checks. The full run (tests/support/amount.ts) also checks the types of the code
// that the console shows.
import { checkPackage } from "../compat/openai_npm_checks.ts";
import { checkContract } from "../conformance/contract_checks.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { checkConsole } from "./console_checks.ts";
import { checkSpeechAndPictures } from "./media/speech_and_picture_checks.ts";
import { checkUploads } from "./media/upload_checks.ts";
import { checkVideos } from "./media/video_checks.ts";

Deno.test("a gateway as it is started", async (t) => {
  await using gateway = await startGateway("launched", { edges: 2 });

  // First, because it looks at the usage of all keys.
  await t.step(
    "its console shows what clients received, and tries requests",
    (t) => checkConsole(t, gateway),
  );

  await t.step("the wire contract", (t) => checkContract(t, gateway));

  await t.step(
    "the official openai package for JavaScript",
    (t) => checkPackage(t, gateway),
  );

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
