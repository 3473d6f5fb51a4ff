import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { assertRefused, eventsOf, startMedia } from "./ask_media_fixture.ts";
import { draw, pictureOf } from "./picture.ts";

const model = "simulated-image-1";
const image = { model, prompt: "A red fox", size: "96x64" };
const SMALL = { words: "A red fox", width: 96, height: 64 };
const png = Buffer.from(pictureOf({ ...SMALL, words: "photo" }));
const photo = new File([png], "a.png", { type: "image/png" });

Deno.test("draw() shows the words, and shapes that depend on them", () => {
  const pixels = draw(SMALL);
  assert.deepEqual(draw(SMALL), pixels);
  const changes = [{ words: "A red box" }, { seed: "1" }, { finished: 0.5 }];
  for (const change of changes) {
    assert.notDeepEqual(draw({ ...SMALL, ...change }), pixels);
  }
  const whitePixels = (words: string) =>
    draw({ words, width: 400, height: 400 })
      .reduce((sum, pixel) => sum + +(pixel === 0xffffffff), 0);
  const none = whitePixels("");
  const [one, two] = [whitePixels("W") - none, whitePixels("w W") - none];
  assert.ok(one > 10 && two === 2 * one, `${one}, ${two}`);
  // The end of a long text is not shown.
  assert.ok(whitePixels("WW ".repeat(400)) < 100 * one);
});

Deno.test("POST /v1/images/generations makes n PNG files of the size, which differ", async () => {
  await using simulator = startMedia();
  const make = async (change: object = {}) =>
    await simulator.client.images.generate({ ...image, n: 2, ...change });
  const { data = [], size, usage, created } = await make();
  assert.ok(Math.abs(created - Date.now() / 1_000) < 60);
  assert.equal(size, "96x64");
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
  const png = Buffer.from(auto.data?.[0]?.b64_json ?? "", "base64");
  assert.equal(png.toString("latin1", 1, 4), "PNG");
  assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20)], [1024, 1024]);
});

Deno.test("a stream of an image has its partial images, then the whole one", async () => {
  await using simulator = startMedia();
  const stream = { ...image, stream: true, partial_images: 2 };
  const events = await eventsOf(
    await simulator.post("/images/generations", stream),
  );
  const partial = "image_generation.partial_image";
  assert.deepEqual(events.map(({ name, type }) => [name, type]), [
    ...[[partial, partial], [partial, partial]],
    ["image_generation.completed", "image_generation.completed"],
  ]);
  const last = events.at(-1);
  assert.equal(last?.usage.total_tokens, 9);
  const whole = await simulator.client.images.generate(image);
  assert.equal(last?.b64_json, whole.data?.[0]?.b64_json);
  assert.equal(new Set(events.map(({ b64_json }) => b64_json)).size, 3);
});

Deno.test("POST /v1/images/edits depends on the first image of the form", async () => {
  await using simulator = startMedia();
  const { client, post, seen } = simulator;
  const answers = [
    await client.images.edit({ ...image, image: photo, n: 1 }),
    await client.images.edit({ ...image, image: [photo, photo] }),
  ];
  const files = answers.map(({ data = [] }) => data[0]?.b64_json);
  assert.equal(new Set(files).size, 1);
  const bare = await client.images.generate(image);
  assert.notEqual(files[0], bare.data?.[0]?.b64_json);
  assert.equal(answers[0]?.usage?.input_tokens_details.image_tokens, 6);
  const stream = { ...image, image: photo, stream: true };
  const [event] = await eventsOf(await post("/images/edits", stream));
  assert.equal(event?.type, "image_edit.completed");
  assert.match(seen.at(0)?.body ?? "", /"image":"a.png"/);
});

Deno.test("a wrong request for images is refused", async () => {
  await using simulator = startMedia();
  const send = (change: object) =>
    simulator.post(
      "image" in change ? "/images/edits" : "/images/generations",
      { ...image, ...change },
    );
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
    [{ image: "a.png" }, 400, "image[0]"],
    [{ image: new File(["no picture"], "a.png") }, 400, "image"],
  ]);
  const broken = await simulator.post("/images/edits", {}, {
    headers: { "content-type": "multipart/form-data; boundary=x" },
  });
  assert.match(await broken.text(), /The form is not valid/);
});
