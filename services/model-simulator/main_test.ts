/** The simulator as a process, as `up` and compose start it. */
import assert from "node:assert/strict";
import { postChat } from "../../tests/support/chat_request.ts";
import {
  sendChat,
  startService,
} from "../../tests/support/service_processes.ts";
import { waitFor } from "../../tests/support/wait_for.ts";

Deno.test("the simulator identifies itself, counts, and drains", async () => {
  await using service = await startService("model-simulator", {
    SIMULATOR_TOKENS_PER_SECOND: "40",
  });
  assert.match(service.process.output(), /"event":"no_real_model"/);
  const ops = `http://127.0.0.1:${service.ready.opsPort}`;
  assert.equal(await (await fetch(`${ops}/readyz`)).text(), "ready\n");
  for (const phrase of ["7 tokens", "5 tokens", "error 503"]) {
    const content = `[simulator: ${phrase}]`;
    await (await sendChat(service.url, "none", content)).text();
  }
  const wanted = [
    "gateway_simulator_tokens_total 12",
    'gateway_simulator_requests_total{outcome="complete"} 2',
    'gateway_simulator_requests_total{outcome="refused"} 1',
    "gateway_simulator_running 1",
  ];
  const response = await postChat(`${service.url}/v1`, "none", {
    messages: [{ role: "user", content: "[simulator: 20 tokens]" }],
    stream: true,
  });
  await waitFor(async () => {
    const text = await (await fetch(`${ops}/metrics`)).text();
    return wanted.every((line) => text.split("\n").includes(line));
  }, { what: "the counts" });
  service.process.signal("SIGTERM");
  const text = await response.text();
  assert.equal(text.match(/"content":"[^"]/g)?.length, 20);
  assert.ok(text.endsWith("data: [DONE]\n\n"));
  assert.equal((await service.process.exited).code, 0);
});
