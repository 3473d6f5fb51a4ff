/** Cases E: what is refused, and with which error. */
import assert from "node:assert/strict";
import {
  assertError,
  type Context,
  type ExpectedError,
  M1,
} from "./context.ts";

const bad = (param: string, code?: string): ExpectedError => ({
  status: 400,
  param,
  ...(code === undefined ? {} : { code }),
});

export async function validationCases(
  t: Deno.TestContext,
  { chat, post }: Context,
): Promise<void> {
  const refuses = async (cases: [object, ExpectedError][]) => {
    for (const [change, expected] of cases) {
      await assertError(
        await chat(change),
        expected,
        JSON.stringify(change).slice(0, 80),
      );
    }
  };
  const accepts = async (changes: object[]) => {
    for (const change of changes) {
      const response = await chat({ max_tokens: 2, ...change });
      assert.equal(
        response.status,
        200,
        `${JSON.stringify(change)}: ${await response.text()}`,
      );
    }
  };

  await t.step("E45 model", async () => {
    await refuses([
      [{ model: undefined }, bad("model", "missing_required_parameter")],
      [{ model: 7 }, bad("model")],
    ]);
    const response = await chat({ model: "nope" });
    const text = await response.clone().text();
    assert.match(text, /nope/);
    await assertError(
      response,
      { status: 404, code: "model_not_found" },
      "nope",
    );
  });
  await t.step("E46 messages", async () => {
    await refuses([
      [{ messages: undefined }, bad("messages", "missing_required_parameter")],
      [{ messages: [] }, bad("messages")],
      [{ messages: "hi" }, bad("messages")],
      [{ messages: [7] }, bad("messages[0]")],
      [
        { messages: [{ role: "bogus", content: "x" }] },
        bad("messages[0].role"),
      ],
      [{ messages: [{ role: "user" }] }, { status: 400 }],
      [
        { messages: [{ role: "user", content: 7 }] },
        bad("messages[0].content"),
      ],
    ]);
  });
  await t.step("E47 sampling bounds: below, at, above", async () => {
    await refuses([
      ...[-0.1, 2.1, "hot", true].map((
        temperature,
      ): [object, ExpectedError] => [
        { temperature },
        bad("temperature"),
      ]),
      ...[-0.1, 1.1].map((
        top_p,
      ): [object, ExpectedError] => [{ top_p }, bad("top_p")]),
      ...[-2.1, 2.1].map((presence_penalty): [object, ExpectedError] => [
        { presence_penalty },
        bad("presence_penalty"),
      ]),
    ]);
    await accepts([
      { temperature: 0 },
      { temperature: 2 },
      { top_p: 0 },
      { top_p: 1 },
      { presence_penalty: -2 },
      { presence_penalty: 2 },
    ]);
  });
  await t.step("E48 integers", async () => {
    await refuses([
      ...[0, -1, 1.5, "2", 9].map((
        n,
      ): [object, ExpectedError] => [{ n }, bad("n")]),
      ...[0, -1, 1.5].map((max_tokens): [object, ExpectedError] => [
        { max_tokens },
        bad("max_tokens"),
      ]),
      [{ seed: 1.5 }, bad("seed")],
      [{ repetition_penalty: 0 }, bad("repetition_penalty")],
      [{ repetition_penalty: -1 }, bad("repetition_penalty")],
    ]);
    await accepts([{ n: 8 }, { seed: -1 }, { seed: 2147483647 }, {
      repetition_penalty: 1.05,
    }]);
  });
  await t.step("E49 types and formats", async () => {
    await refuses([
      [{ stream: "true" }, bad("stream")],
      [{ stop: [1] }, { status: 400 }],
      [{ response_format: {} }, bad("response_format.type")],
      [{ response_format: { type: "xml" } }, { status: 400 }],
      [{ response_format: { type: "json_schema", json_schema: {} } }, {
        status: 400,
      }],
    ]);
    await accepts([{ stop: [] }, { stop: null }]);
    const response = await chat({ response_format: { type: "json_object" } });
    const completion = await response.json();
    assert.equal(
      typeof JSON.parse(completion.choices[0].message.content),
      "object",
    );
  });
  await t.step("E50 bodies that are not a request", async () => {
    const bodies: BodyInit[] = [
      "{",
      "",
      "[]",
      '"x"',
      "null",
      `${JSON.stringify(M1)} x`,
      `{"temperature":1e400,${JSON.stringify(M1).slice(1)}`,
      new Uint8Array([0x7b, 0xff, 0x7d]),
      "[".repeat(100_000),
      `{${Array.from({ length: 10_000 }, (_, i) => `"k${i}":1`).join()}}`,
    ];
    for (const body of bodies) {
      await assertError(
        await post(body),
        { status: 400 },
        String(body).slice(0, 40),
      );
    }
    const withBom = await post(
      `\uFEFF${JSON.stringify({ ...M1, max_tokens: 1 })}`,
    );
    assert.equal(withBom.status, 200, await withBom.text());
  });
  await t.step("E51 too much", async () => {
    await assertError(
      await chat({
        messages: [{ role: "user", content: "word ".repeat(200_000) }],
      }),
      { status: 400, code: "context_length_exceeded", param: "messages" },
      "context",
    );
    await assertError(
      await post(`{"x":"${"a".repeat(21 * 1024 * 1024)}"}`),
      { status: 413 },
      "bytes",
    );
  });
  await t.step("media types", async () => {
    for (
      const type of [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
      ]
    ) {
      await assertError(
        await post(JSON.stringify(M1), { "content-type": type }),
        { status: 415 },
        type,
      );
    }
    await assertError(
      await post(JSON.stringify(M1), {
        "content-type": "application/json",
        "content-encoding": "gzip",
      }),
      { status: 415 },
      "gzip",
    );
  });
}
