import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { assertRefused, eventsOf, startMedia } from "./ask_media_fixture.ts";
import { waitFor } from "../../../tests/support/wait_for.ts";
import { draw } from "./picture.ts";
import { Studio } from "./studio.ts";

const model = "simulated-image-1";
const image = { model, prompt: "A red fox", size: "96x64" };
const SMALL = { words: "A red fox", width: 96, height: 64 };

/** One pixel. */
const WEBP = "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA";

/** Width and height in the head of a PNG file. */
function sizeOf(file = "") {
  const png = Buffer.from(file, "base64");
  assert.equal(png.toString("latin1", 1, 4), "PNG");
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
}

Deno.test("draw() shows the words, and shapes that depend on them", () => {
  const { pixels, png } = draw(SMALL);
  assert.equal(pixels.length, 4 * 96 * 64);
  assert.deepEqual(draw(SMALL).png, png);
  const scenes = [
    { ...SMALL, words: "A red box" },
    { ...SMALL, seed: 1 },
    { ...SMALL, finished: 0.5 },
    { ...SMALL, words: "<&>\u0000\ud800 \uffff" },
  ];
  for (const scene of scenes) assert.notDeepEqual(draw(scene).pixels, pixels);
  const whitePixels = (words: string) => {
    const { pixels } = draw({ words, width: 400, height: 400 });
    const values = new Uint32Array(new Uint8Array(pixels).buffer);
    return values.reduce((sum, value) => sum + +(value === 0xffffffff), 0);
  };
  const none = whitePixels("");
  const [one, two] = [whitePixels("W") - none, whitePixels("W W") - none];
  assert.ok(one > 10 && two === 2 * one, `${one}, ${two}`);
  // The end of a long text is not shown.
  const many = whitePixels("WW ".repeat(400));
  assert.ok(many > 10 * one && many < 100 * one, `${many}`);
});

Deno.test("POST /v1/images/generations makes n PNG files of the size, which differ", async () => {
  await using simulator = startMedia();
  const make = async (change: object = {}) =>
    await simulator.client.images.generate({ ...image, n: 2, ...change });
  const { data = [], size, usage, created } = await make();
  assert.ok(Math.abs(created - Date.now() / 1_000) < 60);
  assert.equal(size, "96x64");
  assert.deepEqual(data.map(({ b64_json }) => sizeOf(b64_json)), [
    [96, 64],
    [96, 64],
  ]);
  assert.deepEqual(usage, {
    input_tokens: 3,
    input_tokens_details: { text_tokens: 3, image_tokens: 0 },
    output_tokens: 12,
    total_tokens: 15,
  });
  const files = [data, (await make()).data, (await make({ prompt: "B" })).data]
    .flatMap((data = []) => data.map(({ b64_json }) => b64_json));
  assert.equal(new Set(files).size, 4);
  const auto = await make({ n: 1, size: "auto" });
  assert.deepEqual(sizeOf(auto.data?.[0]?.b64_json), [1024, 1024]);
});

Deno.test("a stream of an image has its partial images, then the whole one", async () => {
  await using simulator = startMedia();
  const stream = await simulator.client.images.generate({
    ...{ ...image, stream: true, partial_images: 2 },
  });
  const events = await Array.fromAsync(stream);
  assert.deepEqual(events.map(({ type }) => type), [
    "image_generation.partial_image",
    "image_generation.partial_image",
    "image_generation.completed",
  ]);
  const last = events.at(-1);
  assert.ok(last?.type === "image_generation.completed");
  assert.equal(last.usage.total_tokens, 9);
  const whole = await simulator.client.images.generate(image);
  assert.equal(last.b64_json, whole.data?.[0]?.b64_json);
  assert.equal(new Set(events.map(({ b64_json }) => b64_json)).size, 3);
});

Deno.test("POST /v1/images/edits shows the image, from a form and from JSON", async () => {
  await using simulator = startMedia();
  const { png, pixels } = draw({ ...SMALL, words: "photo" });
  const photo = `data:image/png;base64,${Buffer.from(png).toString("base64")}`;
  const shown = draw({ ...SMALL, photo }).pixels;
  assert.deepEqual(shown.subarray(0, 4), pixels.subarray(0, 4));
  assert.notDeepEqual(shown, pixels);
  const file = new File([Buffer.from(png)], "a.png", { type: "image/png" });
  const bare = await simulator.client.images.generate(image);
  const json = {
    ...image,
    images: [{ image_url: photo }, { image_url: photo }],
  };
  const answers = [
    await simulator.client.images.edit({ ...image, image: file, n: 1 }),
    await simulator.client.images.edit({ ...image, image: [file, file] }),
    await (await simulator.post("/images/edits", json)).json(),
  ];
  const files = answers.map(({ data = [] }) => data[0]?.b64_json);
  assert.equal(new Set(files).size, 1);
  assert.deepEqual(sizeOf(files[0]), [96, 64]);
  assert.notEqual(files[0], bare.data?.[0]?.b64_json);
  assert.equal(answers[0]?.usage?.input_tokens_details.image_tokens, 6);
  const [event] = await eventsOf(
    await simulator.post("/images/edits", { ...json, stream: true }),
  );
  assert.equal(event?.type, "image_edit.completed");
  assert.match(simulator.seen.at(1)?.body ?? "", /"image":"a.png"/);
});

Deno.test("a chat is answered while a picture is being drawn", async () => {
  await using simulator = startMedia();
  let isDrawn = false;
  const large = { ...image, size: "2048x2048" };
  const drawing = simulator.client.images.generate(large)
    .then(() => isDrawn = true);
  await waitFor(() => simulator.seen.length > 0, { what: "the request" });
  const messages = [{ role: "user", content: "ping" }];
  const chat = { model: "neutral-3.7-plus", messages };
  const answer = await simulator.post("/chat/completions", chat);
  assert.match(await answer.text(), /"choices"/);
  assert.equal(isDrawn, false);
  await drawing;
});

Deno.test("a picture that cannot be drawn, and one that is left, end nothing else", async () => {
  await using studio = new Studio();
  // No size that a request may have.
  await assert.rejects(studio.picture({ ...SMALL, width: 0 }));
  assert.ok((await studio.picture(SMALL)).length > 0);
  const left = studio.picture(SMALL);
  const refused = assert.rejects(left, /has stopped/);
  await studio[Symbol.asyncDispose]();
  await refused;
});

Deno.test("a wrong request for images is refused", async () => {
  await using simulator = startMedia();
  const { png } = draw(SMALL);
  const huge = Buffer.from(png);
  huge.writeUInt32BE(5_000, 16);
  huge.writeUInt32BE(4_001, 20);
  const bomb = `data:image/png;base64,${huge.toString("base64")}`;
  const send = (change: object) =>
    simulator.post(
      "image" in change || "images" in change
        ? "/images/edits"
        : "/images/generations",
      { ...image, ...change },
    );
  const bad = new File(["no picture"], "a.png");
  // Valid, but the library that draws does not know it.
  const webp = new File([Uint8Array.fromBase64(WEBP)], "a.webp");
  await assertRefused(send, [
    [{ model: "dall-e-3" }, 404, "model"],
    [{ prompt: "" }, 400, "prompt"],
    [{ n: 11 }, 400, "n"],
    [{ size: "15x64" }, 400, "size"],
    [{ size: "4096x64" }, 400, "size"],
    [{ size: "large" }, 400, "size"],
    [{ response_format: "url" }, 400, "response_format"],
    [{ output_format: "webp" }, 400, "output_format"],
    [{ partial_images: 4 }, 400, "partial_images"],
    [{ images: [] }, 400, "images"],
    [{ images: [{ image_url: "http://127.0.0.1/a.png" }] }, 400, "image"],
    [{ images: [{ image_url: bomb }] }, 400, "image"],
    [{ image: bad }, 400, "image"],
    [{ image: webp }, 400, "image"],
  ]);
  const broken = await simulator.post("/images/edits", {}, {
    headers: { "content-type": "multipart/form-data; boundary=x" },
  });
  assert.match(await broken.text(), /The form is not valid/);
});
