/**
 * The property of which the cases are samples: whatever members a client sends to a
 * model server, and the server to a client, arrive unchanged, at any depth.
 */
import assert from "node:assert/strict";
import {
  readImage,
  readSpeech,
  readTranscription,
} from "../../services/edge-auth/media/requests.ts";
import { startServer } from "../../services/media-worker/server_fixture.ts";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { recordContext } from "../support/model_servers/recorded_context.ts";
import { seededRandom, seedsOr } from "../support/seeded_random.ts";

const CATALOG = catalogFromSimulator("http://127.0.0.1:9/v1");
const ROUNDS = 150;
const DEPTH_MAX = 4;
const NAMES = [
  "seed",
  "negative_prompt",
  "lang_code",
  "extra_params",
  "segments",
  "größe",
  "a b",
  "x[]",
  "0",
  "toString",
  "voice_settings",
  "speaker",
];
const TEXTS = ["", "a", "null", "Grüße 😀", 'a"b\\c\n', "{}", "1", "[", "auto"];

type Members = { [name: string]: unknown };

/** Makes JSON by chance. */
class Maker {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  #pick<T>(values: readonly T[]): T | undefined {
    return values[Math.floor(this.#random() * values.length)];
  }

  members(depth = 0): Members {
    const count = Math.floor(this.#random() * 5);
    const entries = Array.from({ length: count }, (): [string, unknown] => [
      this.#pick(NAMES) ?? "",
      this.#value(depth + 1),
    ]);
    return Object.fromEntries(entries);
  }

  /** The fields of a form: texts, or lists of them. */
  fields(): { [name: string]: string | string[] } {
    const entries = Object.keys(this.members()).map(
      (name): [string, string | string[]] => {
        const texts = [this.#text(), this.#text()];
        return [name, name.endsWith("[]") ? texts : this.#text()];
      },
    );
    return Object.fromEntries(entries);
  }

  /** Not empty: an empty field of a form is absent. */
  #text(): string {
    return this.#pick(TEXTS.slice(1)) ?? "a";
  }

  #value(depth: number): unknown {
    const simple = [null, true, false, 0, -1, 1.5, 1e21, this.#pick(TEXTS)];
    if (depth >= DEPTH_MAX || this.#random() < 0.6) return this.#pick(simple);
    if (this.#random() < 0.5) return this.members(depth);
    return [this.#value(depth + 1), this.#value(depth + 1)];
  }
}

/** Members that do not replace those of the test itself. */
const ours = { model: "", input: "Hi", prompt: "A fox" };

for (const seed of seedsOr([1, 2])) {
  Deno.test(`seed ${seed}: members of requests reach the model server unchanged`, async () => {
    const make = new Maker(seed);
    await using server = startServer(() =>
      jsonResponse({ data: [{ b64_json: "AAAA" }] })
    );
    for (let round = 1; round <= ROUNDS; round += 1) {
      const members = make.members();
      const body = { ...members, ...ours };
      const speech = { ...body, model: "simulated-speech-1" };
      assert.deepEqual(readSpeech(speech, CATALOG).fields, {
        ...members,
        prompt: ours.prompt,
      });
      const image = { ...body, model: "simulated-image-1" };
      await server.run(readImage(image, CATALOG));
      const request = await server.peer.request(round);
      assert.deepEqual(request.json(), {
        ...members,
        input: ours.input,
        prompt: ours.prompt,
        model: "theirs",
        response_format: "b64_json",
      });
    }
  });

  Deno.test(`seed ${seed}: fields of forms reach the model server unchanged`, async () => {
    const make = new Maker(seed);
    await using server = startServer(() => jsonResponse({ text: "Hi" }));
    for (let round = 1; round <= ROUNDS; round += 1) {
      const fields = make.fields();
      const form = { ...fields, model: "simulated-transcription-1" };
      await server.run(readTranscription(form, CATALOG, "transcribe"));
      const { body, headers } = await server.peer.request(round);
      const type = headers.get("content-type") ?? "";
      const response = new Response(body, {
        headers: { "content-type": type },
      });
      const expected = Object.entries({ response_format: "json", ...fields })
        .flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
      const [model, ...rest] = [...await response.formData()];
      assert.deepEqual(model, ["model", "theirs"]);
      assert.deepEqual(rest, expected);
    }
  });

  Deno.test(`seed ${seed}: members of answers reach the client unchanged`, async () => {
    const make = new Maker(seed);
    let answer: Members = {};
    await using server = startServer(() => jsonResponse(answer));
    const speechless = { model: "simulated-transcription-1" };
    const request = readTranscription(speechless, CATALOG, "transcribe");
    const usage = { type: "tokens", total_tokens: 3 };
    for (let round = 1; round <= ROUNDS; round += 1) {
      answer = { ...make.members(), text: "Hi", usage };
      const { text } = await server.run(request, recordContext());
      assert.deepEqual(JSON.parse(text), answer);
    }
  });
}
