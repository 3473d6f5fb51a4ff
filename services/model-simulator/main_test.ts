/** The simulator as a process, as `up` and compose start it. */
import { VERSION } from "@gateway/shared/version";
import assert from "node:assert/strict";
import { postChat } from "../../tests/support/chat_request.ts";
import { startService } from "../../tests/support/service_processes.ts";

Deno.test("the simulator identifies itself and its version, and drains", async () => {
  await using service = await startService("model-simulator", {
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
    messages: [{ role: "user", content: "[simulator: 20 tokens]" }],
    stream: true,
  });
  service.process.signal("SIGTERM");
  const text = await response.text();
  assert.equal(text.match(/"content":"[^"]/g)?.length, 20);
  assert.ok(text.endsWith("data: [DONE]\n\n"));
  assert.equal((await service.process.exited).code, 0);
});
