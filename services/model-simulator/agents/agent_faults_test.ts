/** Faults of the simulator on the endpoints of agents. */
import assert from "node:assert/strict";
import { bytesOf, startTestSimulator } from "../ask_fixture.ts";

const model = "neutral-3.7-plus";

/** A request of each endpoint of agents, with a phrase for the simulator. */
const BODIES = {
  "/messages": (phrase: string) => ({
    model,
    max_tokens: 100,
    messages: [
      { role: "user", content: [{ type: "text", text: phrase }] },
      // Agents send it after the user's message.
      { role: "system", content: "A reminder." },
    ],
  }),
  "/responses": (phrase: string) => ({ model, input: phrase }),
  "/completions": (phrase: string) => ({ model, prompt: phrase }),
};

/** How the stream of each endpoint ends when it fails. */
const FAILURES = {
  "/messages":
    /event: error\ndata: {"type":"error","error":{"type":"api_error".*\n\n$/,
  "/responses":
    /event: response.failed\ndata: .*"error":{"code":"server_error".*\n\n$/,
  "/completions": /data: {"error":{.*\n\n$/,
};
/** What stands in its normal end. */
const END = /message_stop|response\.completed|\[DONE\]/;

for (const [path, bodyOf] of Object.entries(BODIES)) {
  Deno.test(`${path} fails where it is asked to`, async () => {
    await using simulator = startTestSimulator();
    const ask = async (phrase: string, { stream = true } = {}) => {
      const body = { ...bodyOf(`Hi [simulator: ${phrase}]`), stream };
      const response = await simulator.post(path, body);
      const { bytes, isCut } = await bytesOf(response);
      return { response, text: bytes.toString(), isCut };
    };
    for (const stream of [true, false]) {
      const { response, text } = await ask("error 529", { stream });
      assert.equal(response.status, 529);
      assert.equal(response.headers.get("retry-after"), "1");
      assert.match(text, /"overloaded_error"/);
      const isAnthropic = path === "/messages";
      assert.equal(text.startsWith('{"type":"error"'), isAnthropic);
    }
    const failed = await ask("fail after 3 tokens");
    const failure = Object.entries(FAILURES)
      .find(([own]) => own === path)?.[1] ?? assert.fail();
    assert.match(failed.text, failure);
    assert.doesNotMatch(failed.text, END);
    const cut = await ask("cut after 3 tokens");
    assert.ok(cut.isCut);
    assert.doesNotMatch(cut.text, END);
    const whole = await ask("3 tokens");
    assert.match(whole.text, END);
    assert.match(whole.text, /"(output|completion)_tokens":3|\[DONE\]/);
    for (const stream of [true, false]) {
      const { text } = await ask("usage missing", { stream });
      assert.doesNotMatch(text, /"usage":{/);
    }
  });
}
