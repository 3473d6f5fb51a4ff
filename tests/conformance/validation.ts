/** Cases E: what is refused, and with which error. */
import assert from "node:assert/strict";
import { assertError, type Cases } from "./context.ts";

/** Values around the bounds of a field, and of the wrong type. */
const FIELDS: [param: string, refused: unknown[], accepted: unknown[]][] = [
  ["temperature", [-0.1, 2.1, "hot", true], [0, 2]],
  ["top_p", [-0.1, 1.1], [0, 1]],
  ["presence_penalty", [-2.1, 2.1], [-2, 2]],
  ["repetition_penalty", [0, -1], [1.05]],
  ["n", [0, -1, 1.5, "2", 9], [8]],
  ["max_tokens", [0, -1, 1.5], [1]],
  ["seed", [1.5], [-1, 2147483647]],
  ["stream", ["true"], [false]],
  ["stop", [], [[], null]],
  ["model", [7], []],
  ["messages", [[], "hi"], []],
];

const says = (message: unknown) => ({ messages: [message] });
const LONG = { role: "user", content: "word ".repeat(200_000) };

/** Changes to a good request, the field that the error names, and its code. */
const REFUSED: [change: object, param?: string, code?: string][] = [
  [{ model: undefined }, "model", "missing_required_parameter"],
  [{ messages: undefined }, "messages", "missing_required_parameter"],
  [says(7), "messages[0]"],
  [says({ role: "bogus", content: "x" }), "messages[0].role"],
  [says({ role: "user" })],
  [says({ role: "user", content: 7 }), "messages[0].content"],
  [{ stop: [1] }],
  [{ stop: "" }, "stop", "empty_string"],
  [{ stop: "a".repeat(513) }, "stop", "string_above_max_length"],
  [{ functions: [{}] }, "functions", "unsupported_parameter"],
  [{ response_format: {} }, "response_format.type"],
  [{ response_format: { type: "xml" } }],
  [{ response_format: { type: "json_schema", json_schema: {} } }],
  [says(LONG), "messages", "context_length_exceeded"],
];

export const validationCases: Cases = async (t, { answer, chat }) => {
  const refuses = async (change: object, param?: string, code?: string) => {
    const what = JSON.stringify(change).slice(0, 80);
    await assertError(await chat(change), { status: 400, param, code }, what);
  };

  for (const [param, refused, accepted] of FIELDS) {
    await t.step(`E45-E49 ${param}`, async () => {
      for (const value of refused) await refuses({ [param]: value }, param);
      for (const value of accepted) {
        await answer({ max_tokens: 2, [param]: value });
      }
    });
  }
  await t.step("E45-E51 other mistakes", async () => {
    for (const row of REFUSED) await refuses(...row);
  });
  await t.step("E45 an unknown model is named", async () => {
    const response = await chat({ model: "nope" });
    assert.match(await response.clone().text(), /nope/);
    await assertError(response, { status: 404, code: "model_not_found" });
  });
  await t.step("E49 a JSON object where one is asked for", async () => {
    const format = { response_format: { type: "json_object" } };
    const { choices: [choice] } = await answer(format);
    assert.equal(typeof JSON.parse(choice?.message.content ?? ""), "object");
  });
  // E50 and E51, bodies that are no request or too large: tests/hostile.
};
