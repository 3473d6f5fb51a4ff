/** Requests for media that are wrong in one way. */
import assert from "node:assert/strict";
import { recording, startTestSimulator } from "../ask_fixture.ts";
import { image, speech, text, video } from "./requests_fixture.ts";

/** A change that makes a request wrong, and the refusal that it gets. */
interface Refusal {
  change: object;
  param: string;
  /** Default: 400. */
  status?: number;
}

Deno.test("a wrong request for media is refused", async () => {
  await using simulator = startTestSimulator();
  const file = await recording(simulator);
  const fileOf = (bytes: BlobPart[]) => new File(bytes, "memo.wav");
  const cases: { path: string; good: object; refusals: Refusal[] }[] = [
    {
      path: "/audio/speech",
      good: speech,
      refusals: [
        { change: { model: "neutral-3.7-plus" }, param: "model", status: 404 },
        { change: { input: "[simulator: sing]" }, param: "input" },
        { change: { response_format: "flac" }, param: "response_format" },
        { change: { speed: 4.1 }, param: "speed" },
      ],
    },
    {
      path: "/images/generations",
      good: image,
      refusals: [
        { change: { size: "15x64" }, param: "size" },
        { change: { size: "4096x64" }, param: "size" },
        { change: { size: "large" }, param: "size" },
        { change: { output_format: "webp" }, param: "output_format" },
      ],
    },
    {
      path: "/images/edits",
      good: image,
      refusals: [{ change: { image: "a.png" }, param: "image[0]" }],
    },
    {
      path: "/audio/transcriptions",
      good: { ...text, file },
      refusals: [
        { change: { file: "memo.wav" }, param: "file" },
        { change: { file: fileOf(["no sound"]) }, param: "file" },
        { change: { file: fileOf([file.slice(0, 20)]) }, param: "file" },
      ],
    },
    {
      path: "/videos",
      good: video,
      refusals: [
        { change: { seconds: "5" }, param: "seconds" },
        { change: { size: "95x64" }, param: "size" },
      ],
    },
  ];
  for (const { path, good, refusals } of cases) {
    for (const { change, param, status = 400 } of refusals) {
      const response = await simulator.post(path, { ...good, ...change });
      const { error } = await response.json();
      const what = `${path} ${JSON.stringify(change).slice(0, 100)}`;
      assert.deepEqual([response.status, error.param], [status, param], what);
    }
  }
});

Deno.test("a form for media that cannot be read is refused", async () => {
  await using simulator = startTestSimulator();
  const broken = await simulator.post("/images/edits", {}, {
    headers: { "content-type": "multipart/form-data; boundary=x" },
  });
  assert.match(await broken.text(), /The form is not valid/);
});
