/** The simulator as a process, as `up` and compose start it. */
import assert from "node:assert/strict";
import { postChat } from "../../tests/support/chat_request.ts";
import {
  sendChat,
  startService,
} from "../../tests/support/service_processes.ts";
import { waitFor } from "../../tests/support/wait_for.ts";

Deno.test("the simulator says that it is none, counts, and drains", async () => {
  await using service = await startService("model-simulator", {
    SIMULATOR_TOKENS_PER_SECOND: "20",
  });
  assert.match(service.process.output(), /"event":"no_real_model"/);
  const ops = `http://127.0.0.1:${service.ready.opsPort}`;
  const ready = await fetch(`${ops}/readyz`);
  assert.equal(await ready.text(), "ready\n");
  const metric = async (name: string) => {
    const text = await (await fetch(`${ops}/metrics`)).text();
    const line = text.split("\n").find((each) => each.startsWith(`${name} `));
    return Number(line?.split(" ")[1]);
  };
  const response = await postChat(`${service.url}/v1`, "none", {
    messages: [{ role: "user", content: "[simulator: 10 tokens]" }],
    stream: true,
  });
  assert.equal(await metric("gateway_simulator_running"), 1);
  service.process.signal("SIGTERM");
  const text = await response.text();
  assert.equal(text.match(/"content":"[^"]/g)?.length, 10);
  assert.ok(text.endsWith("data: [DONE]\n\n"));
  assert.equal((await service.process.exited).code, 0);
});

Deno.test("what was made is counted", async () => {
  await using service = await startService("model-simulator", {});
  const post = (content: string) => sendChat(service.url, "none", content);
  for (const phrase of ["7 tokens", "5 tokens", "error 503"]) {
    await (await post(`[simulator: ${phrase}]`)).body?.cancel();
  }
  const url = `http://127.0.0.1:${service.ready.opsPort}/metrics`;
  const wanted = [
    "gateway_simulator_tokens_total 12",
    'gateway_simulator_requests_total{outcome="complete"} 2',
    'gateway_simulator_requests_total{outcome="refused"} 1',
    "gateway_simulator_running 0",
  ];
  await waitFor(async () => {
    const text = await (await fetch(url)).text();
    return wanted.every((line) => text.split("\n").includes(line));
  }, { what: "the counts" });
});
