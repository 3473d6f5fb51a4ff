// Promise: the optional profiles of compose.yaml work: Grafana draws the dashboard from
// Prometheus' data, traces arrive, and a model on Ollama answers through the gateway.
// Run by `deno task test:profiles`; its images come from a registry or are named in
// PROMETHEUS_IMAGE, OTEL_IMAGE, GRAFANA_IMAGE and OLLAMA_IMAGE.
import assert from "node:assert/strict";
import { findFreePorts } from "../up/ports.ts";
import { Grafana, type Panel } from "./grafana.ts";
import { send, startLoad } from "./load.ts";
import { startStack } from "./stack.ts";
import { gateway, say, until } from "./steps.ts";

const STREAMS = 4;
const TARGETS = 4;
const DASHBOARD = new URL(
  "../observability/grafana/dashboards/gateway.json",
  import.meta.url,
);
const TOKENS_MAX = 32;
const OLLAMA_MODEL = Deno.env.get("OLLAMA_MODEL") ?? "llama3.2";

Deno.test("the profile observability", async (t) => {
  const [port = 0] = findFreePorts(1);
  await using stack = await startStack({
    env: {
      COMPOSE_PROFILES: "observability",
      GRAFANA_PORT: String(port),
      SIMULATOR_TOKENS_PER_SECOND: "100",
      OTEL_DENO: "true",
    },
  });
  await stack.scale({ edges: 2, workers: 1 });
  const made = await gateway(stack, "keys", "create", "--description", "test");
  const load = startLoad(stack, made.key, STREAMS);
  try {
    const password = await stack.secret("grafana_admin_password");
    const grafana = new Grafana(`http://127.0.0.1:${port}`, password);

    await t.step(
      "Grafana accepts only its password",
      async () => {
        const stranger = new Grafana(`http://127.0.0.1:${port}`, "admin");
        assert.equal(await stranger.status("/api/org"), 401);
        assert.equal(await grafana.status("/api/org"), 200);
        assert.equal((await grafana.dataSourceHealth()).status, "OK");
      },
    );

    await t.step("Prometheus finds every container", async () => {
      await until("all targets to be up", async () => {
        const targets = await grafana.targets();
        return targets.length === TARGETS &&
          targets.every(({ health }) => health === "up");
      });
    });

    await t.step("the dashboard exists, and each panel has data", async () => {
      const shown = await grafana.dashboard();
      const file: { panels: Panel[] } = JSON.parse(
        await Deno.readTextFile(DASHBOARD),
      );
      assert.deepEqual(
        shown.panels.map(({ title }) => title),
        file.panels.map(({ title }) => title),
      );
      const panels = shown.panels.filter(({ type }) => type !== "row");
      for (const panel of panels) {
        await until(
          `data for "${panel.title}"`,
          async () => await grafana.points(panel) > 0,
        );
      }
      say(`${panels.length} panels`);
      say(`Grafana ${await grafana.version()}`);
    });

    await t.step("traces arrive at the collector", async () => {
      await until("traces", async () =>
        /Traces.*"?spans"?: [1-9]/.test(
          await stack.compose("logs", "--no-log-prefix", "otel-collector"),
        ));
    });
  } finally {
    await load.stop();
  }
  assert.deepEqual(load.failures, []);
});

Deno.test("the profile ollama", async (t) => {
  await using stack = await startStack({
    env: {
      COMPOSE_PROFILES: "ollama",
      UPSTREAM_BASE_URL: "http://ollama:11434/v1",
      UPSTREAM_MODEL: OLLAMA_MODEL,
      UPSTREAM_DIALECT: "ollama",
      UPSTREAM_FIRST_TOKEN_SECONDS: "300",
    },
  });
  const made = await gateway(stack, "keys", "create", "--description", "test");
  const ollama = (...args: string[]) =>
    stack.compose("exec", "-T", "ollama", "ollama", ...args);
  // An image for a machine without a registry contains its model.
  if (!(await ollama("list")).includes(OLLAMA_MODEL)) {
    await ollama("pull", OLLAMA_MODEL);
  }

  const ask = (kind: "whole" | "stream") =>
    send(stack, made.key, kind, {
      max_tokens: TOKENS_MAX,
      stream_options: kind === "stream" ? { include_usage: true } : null,
    });
  const answers = async () => (await ask("whole")).status === 200;
  await until("the model to be loaded", answers);

  await t.step("answers with and without streaming, with usage", async () => {
    const whole = await ask("whole");
    assert.equal(whole.status, 200, whole.text);
    const { usage, choices } = JSON.parse(whole.text);
    assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
    assert.match(choices[0].finish_reason, /^(stop|length)$/);
    const streamed = await ask("stream");
    assert.equal(streamed.status, 200, streamed.text);
    assert.match(streamed.text, /"completion_tokens":[1-9]/);
    assert.match(streamed.text, /data: \[DONE\]\s*$/);
    say(
      `${usage.completion_tokens} tokens, ${streamed.readsAtMs.length} reads`,
    );
  });

  await t.step(
    "reports that it is unavailable, and works again when it is back",
    async () => {
      await stack.compose("stop", "--timeout", "1", "ollama");
      const refused = await ask("whole");
      assert.ok(refused.status >= 502 && refused.status <= 504, refused.text);
      assert.match(refused.text, /"error"/);
      say(`${refused.status} ${refused.text}`);
      await stack.compose("start", "ollama");
      await until("an answer", answers);
    },
  );
});
