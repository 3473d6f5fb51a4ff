/** The simulator as a server and as a process. */
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { VERSION } from "@gateway/shared/version";
import assert from "node:assert/strict";
import { postChat } from "../../tests/support/chat_request.ts";
import { startGateway } from "../../tests/support/gateway/gateway.ts";
import { startTestSimulator } from "./ask_fixture.ts";

Deno.test("an answer names the simulator and quotes the question; a stream has the same content", async () => {
  await using simulator = startTestSimulator();
  const prompt = "What is the capital of France?";
  const body = { prompt, seed: 7, n: 2, enable_thinking: true };
  const lines = await simulator.stream({
    ...body,
    stream_options: { include_usage: true },
  });
  assert.equal(lines.at(-1), "[DONE]");
  const chunks = lines.slice(0, -1).map((line) => JSON.parse(line));
  const whole = await simulator.ask(body);
  assert.match(String(whole.system_fingerprint), /^simulator/);
  for (const { index, message, finish_reason } of whole.choices) {
    assert.match(
      message.content ?? "",
      /^I am the gateway's model simulator, not a real model\. You asked: "What is the capital of France\?"\. Here is a passage instead\.\n\n\w/,
    );
    const own = chunks.flatMap(({ choices }) => choices)
      .filter((choice) => choice.index === index);
    const joined = (name: string) =>
      own.map(({ delta }) => delta[name] ?? "").join("");
    assert.equal(joined("content"), message.content);
    assert.equal(joined("reasoning_content"), message.reasoning_content);
    assert.equal(joined("role"), "assistant");
    assert.equal(own.at(-1).finish_reason, finish_reason);
  }
  assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
  const plain = await simulator.stream(body);
  assert.ok(plain.every((line) => !line.includes("usage")));
});

Deno.test("the same body and seed get the same answer, from every process", async () => {
  await using one = startTestSimulator();
  await using other = startTestSimulator();
  const body = { seed: 42, temperature: 1.5, n: 3 };
  const textFor = async (simulator: typeof one, change: object) =>
    (await simulator.ask({ ...body, ...change })).choices;
  assert.deepEqual(await textFor(one, {}), await textFor(other, {}));
  assert.notDeepEqual(await textFor(one, {}), await textFor(one, { seed: 43 }));
  const unseeded = { seed: null };
  const choices = await textFor(one, unseeded);
  assert.notDeepEqual(choices, await textFor(one, unseeded));
  const texts = choices.map(({ message }) => message.content);
  assert.equal(new Set(texts).size, 3);
});

Deno.test("GET /v1/models and /health", async () => {
  await using simulator = startTestSimulator();
  const get = (path: string) => fetch(new URL(path, simulator.url));
  const { data } = await (await get("/v1/models")).json();
  const ids = data.map(({ id }: { id: string }) => id);
  assert.deepEqual(ids, [...catalogFromSimulator(simulator.url).keys()]);
  assert.equal(data[0].owned_by, "simulator");
  const one = await get("/v1/models/neutral-3.7-plus");
  assert.deepEqual(await one.json(), data[0]);
  assert.deepEqual(await (await get("/health")).json(), { status: "ok" });
  for (const path of ["/v1/models/other", "/v1/nothing", "/"]) {
    const response = await get(path);
    assert.equal(response.status, 404, path);
    assert.equal((await response.json()).error.type, "invalid_request_error");
  }
});

Deno.test("a wrong request is refused as model servers do", async () => {
  await using simulator = startTestSimulator();
  const open = { type: "object" };
  const json_schema = { name: "x", strict: true, schema: open };
  const response_format = { type: "json_schema", json_schema };
  const strict = { name: "x", strict: true, parameters: open };
  const tools = [{ type: "function", function: strict }];
  const cases: { change: object; status: number; param: string }[] = [
    { change: { model: "gpt-9" }, status: 404, param: "model" },
    {
      change: { messages: [{ role: "king", content: "" }] },
      status: 400,
      param: "messages[0].role",
    },
    { change: { temperature: 2.1 }, status: 400, param: "temperature" },
    { change: { tool_choice: "required" }, status: 400, param: "tool_choice" },
    { change: { response_format }, status: 400, param: "response_format" },
    { change: { tools }, status: 400, param: "tools[0].function.parameters" },
  ];
  for (const { change, status, param } of cases) {
    const response = await simulator.chat({ ...change });
    const { error } = await response.json();
    assert.equal(response.status, status, JSON.stringify(error));
    assert.equal(error.type, "invalid_request_error");
    assert.equal(error.param, param);
  }
  // Sent in chunks, without a length.
  for (const body of ["{", ReadableStream.from([new Uint8Array(1)])]) {
    const url = `${simulator.url}/chat/completions`;
    const response = await fetch(url, { method: "POST", body });
    await response.body?.cancel();
    assert.equal(response.status, 400);
  }
});

Deno.test("a simulator process identifies itself and its version, and drains", async () => {
  await using gateway = await startGateway("services");
  const service = await gateway.start("model-simulator", {
    SIMULATOR_TOKENS_PER_SECOND: "40",
  });
  assert.match(service.process.output(), /"event":"no_real_model"/);
  const ops = `http://127.0.0.1:${service.ready.opsPort}`;
  assert.equal(await (await fetch(`${ops}/readyz`)).text(), "ready\n");
  assert.equal(service.ready.version, VERSION);
  const health = await fetch(`${ops}/healthz`);
  assert.equal(await health.text(), `ok ${VERSION}\n`);
  const metrics = await fetch(`${ops}/metrics`);
  const [version, revision = ""] = VERSION.split("+");
  const labels = `version="${version}",revision="${revision}"`;
  const build = `gateway_build_info{${labels},deno="${Deno.version.deno}"} 1\n`;
  assert.ok((await metrics.text()).includes(build), build);
  const response = await postChat(`${service.url}/v1`, "none", {
    body: {
      messages: [{ role: "user", content: "[simulator: 20 tokens]" }],
      stream: true,
    },
  });
  service.process.signal("SIGTERM");
  const text = await response.text();
  assert.equal(text.match(/"content":"[^"]/g)?.length, 20);
  assert.ok(text.endsWith("data: [DONE]\n\n"));
  assert.equal((await service.process.exited).code, 0);
});
