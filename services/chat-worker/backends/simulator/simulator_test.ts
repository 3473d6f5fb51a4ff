import assert from "node:assert/strict";
import type { RequestFields } from "./test_support.ts";
import { ask, askOne, countTokens, simulatorOf } from "./test_support.ts";

/** Each request field has an effect that can be seen. */
const SEEDS = Array.from({ length: 12 }, (_, seed) => seed);

Deno.test("an answer has content, a finish and exact usage, and ends by itself", async () => {
  for (const seed of SEEDS) {
    const { choices, usage, batches } = await ask({ seed });
    const [choice] = choices;
    assert.ok(choice);
    assert.ok(choice.content.length > 20, choice.content);
    assert.equal(choice.finish, "stop");
    assert.equal(choice.reasoning, "");
    assert.deepEqual(usage, {
      prompt_tokens: 6 + countTokens("Why is the sky blue?"),
      completion_tokens: countTokens(choice.content),
      total_tokens: 6 + countTokens("Why is the sky blue?") +
        countTokens(choice.content),
      prompt_tokens_details: { cached_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    assert.ok(usage.completion_tokens > 10 && usage.completion_tokens < 500);
    assert.equal(batches.at(-1)?.at(-1)?.type, "usage");
  }
});

Deno.test("the answer is about the question", async () => {
  let fitting = 0;
  for (const seed of SEEDS) {
    const { content } = await askOne({ seed });
    if (/\b(light|sky|blue|sun|earth|experiment)\b/i.test(content)) {
      fitting += 1;
    }
  }
  assert.ok(fitting >= SEEDS.length - 2, `${fitting}`);
});

Deno.test("any text can be asked", async () => {
  const texts = [
    "",
    " ",
    "\u0000",
    "🙂",
    "你好",
    "[[[",
    "\ud800",
    "a".repeat(999),
  ];
  for (const messages of texts) {
    const { content, finish } = await askOne({ messages });
    assert.ok(content.length > 0);
    assert.equal(finish, "stop");
  }
  const { content } = await askOne({
    messages: [{ role: "system", content: "Be kind." }],
  });
  assert.ok(content.length > 0);
});

Deno.test("the same body and seed give the same answer: streamed or not, in any simulator", async () => {
  const fields: RequestFields = { seed: 7, n: 2, temperature: 1.3 };
  const first = await ask(fields, simulatorOf({ chance: "one" }));
  const second = await ask(fields, simulatorOf({ chance: "two" }));
  const whole = await ask({ ...fields, stream: false }, simulatorOf());
  assert.deepEqual(first, second);
  assert.deepEqual(first.choices, whole.choices);
  assert.deepEqual(first.usage, whole.usage);
});

Deno.test("a seed may be any integer", async () => {
  const contents = new Set<string>();
  for (const seed of [-1, 0, 1, 2 ** 31 - 1, 2 ** 53, -(2 ** 53)]) {
    const { content } = await askOne({ seed, temperature: 1.5 });
    contents.add(content);
    assert.equal((await askOne({ seed, temperature: 1.5 })).content, content);
  }
  assert.ok(contents.size >= 5);
});

Deno.test("without a seed answers differ, by the injected chance alone", async () => {
  const simulator = simulatorOf({ chance: "x" });
  const contents = new Set<string>();
  for (const _ of SEEDS) {
    contents.add((await askOne({ temperature: 1.2 }, simulator)).content);
  }
  assert.ok(contents.size > SEEDS.length / 2);
  const again = await askOne(
    { temperature: 1.2 },
    simulatorOf({ chance: "x" }),
  );
  assert.ok(contents.has(again.content));
});

Deno.test("temperature 0 always gives one answer, and a high one gives many", async () => {
  const answersAt = async (temperature: number) => {
    const contents = new Set<string>();
    for (const seed of SEEDS) {
      contents.add((await askOne({ seed, temperature })).content);
    }
    return contents;
  };
  assert.equal((await answersAt(0)).size, 1);
  assert.equal((await answersAt(2)).size, SEEDS.length);
});

Deno.test("temperature 0 needs no seed, even for tool calls and JSON", async () => {
  const fields: RequestFields = {
    temperature: 0,
    response_format: {
      type: "json_schema",
      json_schema: {
        name: "s",
        schema: { type: "object", properties: { n: { type: "integer" } } },
      },
    },
  };
  const one = await askOne(fields, simulatorOf({ chance: "one" }));
  const two = await askOne(fields, simulatorOf({ chance: "two" }));
  assert.equal(one.content, two.content);
});

Deno.test("a tiny top_p is greedy, whatever the temperature", async () => {
  const { content } = await askOne({ temperature: 0 });
  for (const seed of SEEDS.slice(0, 4)) {
    for (const top_p of [0, 0.0001]) {
      const fields = { seed, top_p, temperature: 1.5 };
      assert.equal((await askOne(fields)).content, content);
    }
  }
});

Deno.test("a lower top_p leaves fewer different answers", async () => {
  const answersAt = async (top_p: number) => {
    const contents = new Set<string>();
    for (const seed of SEEDS) {
      contents.add((await askOne({ seed, top_p, temperature: 1 })).content);
    }
    return contents.size;
  };
  assert.ok(await answersAt(0.3) < await answersAt(1));
});

const PENALTIES: { name: string; more: RequestFields; less: RequestFields }[] =
  [
    {
      name: "presence_penalty",
      more: { presence_penalty: -2 },
      less: { presence_penalty: 2 },
    },
    {
      name: "frequency_penalty",
      more: { frequency_penalty: -2 },
      less: { frequency_penalty: 2 },
    },
    {
      name: "repetition_penalty",
      more: { repetition_penalty: 0.7 },
      less: { repetition_penalty: 1.5 },
    },
  ];

for (const { name, more, less } of PENALTIES) {
  Deno.test(`${name} makes repeats rarer`, async () => {
    const repeated = async (fields: RequestFields) => {
      let repeats = 0;
      for (const seed of SEEDS) {
        const { content } = await askOne({
          seed,
          temperature: 1,
          messages: "[simulator: 80 tokens] Why is the sky blue?",
          ...fields,
        });
        const words = content.split(" ");
        repeats += 1 - new Set(words).size / words.length;
      }
      return repeats / SEEDS.length;
    };
    const [many, usual, few] = [
      await repeated(more),
      await repeated({}),
      await repeated(less),
    ];
    assert.ok(few < usual, `${few} ${usual}`);
    assert.ok(usual < many, `${usual} ${many}`);
  });
}

Deno.test("every answer ends, even where all repeats are invited", async () => {
  for (const temperature of [0, 0.1, 1, 2]) {
    const { finish, usage } = await askOne({
      seed: 1,
      temperature,
      presence_penalty: -2,
      frequency_penalty: -2,
      repetition_penalty: 0.5,
      enable_thinking: true,
    });
    assert.equal(finish, "stop");
    assert.ok((usage?.completion_tokens ?? 0) < 1000);
  }
});

Deno.test("repetition_penalty is also about the words of the prompt", async () => {
  const said = async (repetition_penalty: number) => {
    let count = 0;
    for (const seed of SEEDS) {
      const messages = "[simulator: 60 tokens] the sky is blue because light";
      const { content } = await askOne({ seed, messages, repetition_penalty });
      count += content.match(/ (the|sky|is|blue|because|light)\b/g)?.length ??
        0;
    }
    return count;
  };
  assert.ok(await said(1.6) < 0.7 * await said(1));
});

Deno.test("n gives so many choices, the first of them the same for any n", async () => {
  const { choices, usage } = await ask({ n: 3, seed: 5, temperature: 1.2 });
  assert.equal(choices.length, 3);
  assert.equal(new Set(choices.map(({ content }) => content)).size, 3);
  for (const { finish } of choices) assert.equal(finish, "stop");
  const tokens = choices.map(({ content }) => countTokens(content));
  assert.equal(usage?.completion_tokens, tokens.reduce((a, b) => a + b));
  const one = await askOne({ n: 1, seed: 5, temperature: 1.2 });
  assert.equal(choices[0]?.content, one.content);
});

Deno.test("the choices of n advance together", async () => {
  const { batches } = await ask({
    n: 4,
    seed: 5,
    messages: "[simulator: 40 tokens] go",
  });
  const said = [0, 0, 0, 0];
  for (const event of batches.flat()) {
    if (event.type !== "delta") continue;
    said[event.index] = (said[event.index] ?? 0) + 1;
    assert.ok(Math.max(...said) - Math.min(...said) <= 1);
  }
  assert.deepEqual(said, [40, 40, 40, 40]);
});

Deno.test("max_tokens bounds the answer, and says so", async () => {
  const whole = await askOne({ seed: 3 });
  const tokens = whole.usage?.completion_tokens ?? 0;
  for (const max_tokens of [1, 2, 15, 16, 17, tokens]) {
    const { content, finish, usage } = await askOne({ seed: 3, max_tokens });
    assert.equal(finish, "length");
    assert.equal(usage?.completion_tokens, max_tokens);
    assert.ok(whole.content.startsWith(content));
  }
  const enough = await askOne({ seed: 3, max_tokens: tokens + 1 });
  assert.equal(enough.finish, "stop");
  assert.equal(enough.content, whole.content);
});

Deno.test("max_tokens is per choice", async () => {
  const { choices, usage } = await ask({ n: 3, max_tokens: 5 });
  assert.deepEqual(
    choices.map(({ finish }) => finish),
    Array(3).fill("length"),
  );
  assert.equal(usage?.completion_tokens, 15);
});

Deno.test("the model's own bounds hold without max_tokens", async () => {
  const long = { messages: "[simulator: 500 tokens] go" };
  const output = await askOne(
    long,
    simulatorOf({ model: { outputTokensMax: 30 } }),
  );
  assert.equal(output.usage?.completion_tokens, 30);
  assert.equal(output.finish, "length");
  const context = await askOne(
    long,
    simulatorOf({ model: { contextTokensMax: 100 } }),
  );
  assert.equal(context.usage?.total_tokens, 100);
  assert.equal(context.finish, "length");
});

Deno.test("a prompt beyond the context is refused before anything is said", async () => {
  const simulator = simulatorOf({ model: { contextTokensMax: 50 } });
  await assert.rejects(
    ask({ messages: "word ".repeat(100) }, simulator),
    { code: "context_length_exceeded", status: 400, param: "messages" },
  );
  await assert.rejects(ask({ max_tokens: 50 }, simulator), {
    code: "context_length_exceeded",
  });
});

Deno.test("stop ends the answer before the stop text, wherever token bounds are", async () => {
  const whole = await askOne({ seed: 3 });
  const tokens = whole.usage?.completion_tokens ?? 0;
  for (let at = 1; at < whole.content.length - 9; at += 7) {
    const stop = whole.content.slice(at, at + 9);
    const { content, finish, usage } = await askOne({ seed: 3, stop: [stop] });
    assert.equal(content, whole.content.slice(0, whole.content.indexOf(stop)));
    assert.equal(finish, "stop");
    // Nothing is said after the token in which the stop text is complete.
    const atStop = countTokens(content + stop);
    assert.ok((usage?.completion_tokens ?? 0) <= Math.min(tokens, atStop + 1));
  }
});

Deno.test("stop: the earliest of several counts, and one that never comes changes nothing", async () => {
  const whole = await askOne({ seed: 3 });
  const cut = await askOne({ seed: 3, stop: ["never said 123", "e", ". "] });
  assert.equal(cut.content, whole.content.slice(0, whole.content.indexOf("e")));
  const uncut = await askOne({ seed: 3, stop: ["never said 123"] });
  assert.equal(uncut.content, whole.content);
});

Deno.test("stop holds in JSON, and text held back for it comes out at the end", async () => {
  const response_format = { type: "json_object" } as const;
  const { content, finish } = await askOne({ response_format, stop: [":"] });
  assert.equal(content, '{"answer"');
  assert.equal(finish, "stop");
  const held = await askOne({ response_format, stop: ["}nothing"] });
  assert.ok(JSON.parse(held.content));
  const cut = await askOne({
    seed: 3,
    max_tokens: 4,
    stop: ["blue because x"],
  });
  assert.equal(cut.content, (await askOne({ seed: 3, max_tokens: 4 })).content);
});

Deno.test("enable_thinking reasons first and counts it", async () => {
  const { batches, choices, usage } = await ask({
    seed: 1,
    enable_thinking: true,
  });
  const [choice] = choices;
  assert.ok(
    choice && choice.reasoning.length > 20 && choice.content.length > 20,
  );
  const kinds = batches.flat().flatMap((event) =>
    event.type !== "delta"
      ? []
      : [event.reasoning === undefined ? "content" : "reasoning"]
  );
  assert.equal(kinds.lastIndexOf("reasoning") + 1, kinds.indexOf("content"));
  const reasoned = usage?.completion_tokens_details?.reasoning_tokens;
  assert.equal(reasoned, kinds.indexOf("content"));
  assert.equal(
    usage?.completion_tokens,
    (reasoned ?? 0) + countTokens(choice.content),
  );
  for (const enable_thinking of [undefined, false]) {
    const plain = await askOne({
      seed: 1,
      ...(enable_thinking === undefined ? {} : { enable_thinking }),
    });
    assert.equal(plain.reasoning, "");
  }
});

Deno.test("thinking_budget bounds the reasoning, max_tokens everything", async () => {
  for (const thinking_budget of [1, 7, 30]) {
    const { content, usage } = await askOne({
      seed: 1,
      enable_thinking: true,
      thinking_budget,
    });
    const details = usage?.completion_tokens_details;
    assert.equal(details?.reasoning_tokens, thinking_budget);
    assert.ok(content.length > 20);
  }
  const cut = await askOne({ enable_thinking: true, max_tokens: 5 });
  assert.equal(cut.finish, "length");
  assert.equal(cut.content, "");
  assert.equal(cut.usage?.completion_tokens, 5);
  const unused = await askOne({ seed: 1, thinking_budget: 5 });
  assert.equal(unused.reasoning, "");
});

Deno.test("logprobs are those of the tokens said", async () => {
  const { content, logprobs, usage } = await askOne({
    seed: 2,
    logprobs: true,
    top_logprobs: 5,
    temperature: 0,
  });
  const entries = logprobs.flatMap((one) => entriesOf(one.content));
  assert.equal(entries.map(({ token }) => token).join(""), content);
  assert.equal(entries.length, usage?.completion_tokens);
  for (const { token, logprob, bytes, top_logprobs } of entries) {
    assert.ok(logprob <= 0);
    assert.deepEqual(bytes, [...new TextEncoder().encode(token)]);
    assert.equal(top_logprobs.length, 5);
    // Greedy: the token said is the most probable one.
    assert.equal(top_logprobs[0]?.logprob, logprob);
    const sum = top_logprobs.reduce(
      (all, one) => all + Math.exp(one.logprob),
      0,
    );
    assert.ok(sum <= 1 + 1e-9);
  }
  assert.equal(logprobs[0]?.refusal, null);
});

Deno.test("logprobs are there only when asked for, with the alternatives asked for", async () => {
  assert.deepEqual((await askOne({ seed: 2 })).logprobs, []);
  assert.deepEqual((await askOne({ seed: 2, logprobs: false })).logprobs, []);
  const { logprobs } = await askOne({ seed: 2, logprobs: true });
  for (const entry of logprobs.flatMap((one) => entriesOf(one.content))) {
    assert.deepEqual(entry.top_logprobs, []);
  }
  const most = await askOne({ seed: 2, logprobs: true, top_logprobs: 20 });
  for (const entry of most.logprobs.flatMap((one) => entriesOf(one.content))) {
    assert.equal(entry.top_logprobs.length, 20);
  }
});

Deno.test("a picture is acknowledged, how many there are too", async () => {
  const image = { type: "image_url" as const, image_url: { url: "data:," } };
  const askWith = (images: number) =>
    askOne({
      messages: [{
        role: "user",
        content: [
          { type: "text", text: "Look!" },
          ...Array.from({ length: images }, () => image),
        ],
      }],
    });
  assert.match((await askWith(1)).content, /the image/);
  assert.match((await askWith(3)).content, /3 images/);
  assert.doesNotMatch((await askWith(0)).content, /image/);
  const used = (await askWith(3)).usage?.prompt_tokens ?? 0;
  assert.equal(used - ((await askWith(1)).usage?.prompt_tokens ?? 0), 2 * 765);
});

Deno.test("json_object answers with a JSON object", async () => {
  for (const seed of SEEDS) {
    const { content, finish } = await askOne({
      seed,
      messages: "Who is Ada? Answer in JSON with keys name and fact.",
      response_format: { type: "json_object" },
    });
    const value: unknown = JSON.parse(content);
    assert.ok(typeof value === "object" && value !== null);
    assert.deepEqual(Object.keys(value), ["name", "fact"]);
    assert.equal(finish, "stop");
  }
});

Deno.test("json_schema answers as the schema wants, or is cut by max_tokens", async () => {
  const response_format = {
    type: "json_schema" as const,
    json_schema: {
      name: "event",
      strict: true,
      schema: {
        type: "object",
        properties: {
          city: { type: "string" },
          day: { type: "string", format: "date" },
          guests: { type: "array", items: { type: "string" }, minItems: 2 },
        },
        required: ["city", "day", "guests"],
        additionalProperties: false,
      },
    },
  };
  for (const seed of SEEDS) {
    const fields = { seed, response_format, messages: "A party in Oslo" };
    const { content, usage } = await askOne(fields);
    const value = JSON.parse(content);
    assert.deepEqual(Object.keys(value), ["city", "day", "guests"]);
    assert.equal(value.city, "Oslo");
    assert.match(value.day, /^\d{4}-\d{2}-\d{2}$/);
    assert.ok(value.guests.length >= 2);
    const tokens = usage?.completion_tokens ?? 0;
    assert.equal(tokens, countTokens(content));
    const whole = await askOne({ ...fields, max_tokens: tokens });
    assert.equal(whole.finish, "stop");
    assert.equal(whole.content, content);
    const cut = await askOne({ ...fields, max_tokens: tokens - 1 });
    assert.equal(cut.finish, "length");
    assert.ok(content.startsWith(cut.content));
  }
});

Deno.test("response_format text changes nothing", async () => {
  const plain = await askOne({ seed: 3 });
  const text = await askOne({ seed: 3, response_format: { type: "text" } });
  assert.equal(text.content, plain.content);
});

Deno.test("the words long and short in the question have their effect", async () => {
  const tokensOf = async (messages: string) => {
    let tokens = 0;
    for (const seed of SEEDS) {
      tokens += (await askOne({ seed, messages })).usage?.completion_tokens ??
        0;
    }
    return tokens;
  };
  const usual = await tokensOf("Tell me about bees");
  assert.ok(await tokensOf("Tell me briefly about bees") < usual);
  assert.ok(await tokensOf("Write a long text about bees") > 1.5 * usual);
});

Deno.test("the fingerprint names the simulator and its corpus", () => {
  assert.match(simulatorOf().fingerprint ?? "", /^simulator-\d+-[0-9a-f]{8}$/);
  assert.equal(simulatorOf().fingerprint, simulatorOf().fingerprint);
  assert.equal(simulatorOf().name, "simulator");
});

interface Entry {
  token: string;
  logprob: number;
  bytes: number[];
  top_logprobs: { token: string; logprob: number }[];
}

function entriesOf(content: unknown): Entry[] {
  return Array.isArray(content) ? content : [];
}
