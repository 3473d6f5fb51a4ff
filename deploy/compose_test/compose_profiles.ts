// Promise: the optional profiles of compose.yaml work: Grafana draws the dashboard from
// Prometheus' data, traces arrive, and a model on Ollama answers through the gateway.
// Run by `deno task test:profiles`; its images come from a registry or are named in
// PROMETHEUS_IMAGE, OTEL_IMAGE, GRAFANA_IMAGE and OLLAMA_IMAGE.
import assert from "node:assert/strict";
import { findFreePorts } from "../up/ports.ts";
import { Load, send } from "./load.ts";
import { say, startStack, until } from "./stack.ts";

const STREAMS = 4;
const TARGETS = 4;
const DASHBOARD = new URL(
  "../observability/grafana/dashboards/gateway.json",
  import.meta.url,
);
const TOKENS_MAX = 32;
const OLLAMA_MODEL = Deno.env.get("OLLAMA_MODEL") ?? "llama3.2";

const ANSWER_MS = 10_000;
const SOURCE = "prometheus";

/** A panel in the JSON of a dashboard. */
interface Panel {
  type: string;
  title: string;
  targets?: { refId: string; expr: string }[];
}

/** A dashboard as JSON. */
interface Dashboard {
  panels: Panel[];
}

/** What Grafana says of itself, and of a source of data. */
interface Health {
  version?: string;
  status?: string;
}

/** What Prometheus observes. */
interface Targets {
  data: { activeTargets: { health: string }[] };
}

/**
 * The points of a response: each frame is a list of columns, the first of them times.
 */
interface QueryAnswer {
  results: Record<
    string,
    { error?: string; frames?: { data: { values: unknown[][] } }[] }
  >;
}

/** A running Grafana. */
interface Grafana {
  /** Reads JSON. Throws on an error status. */
  json<T>(path: string, init?: RequestInit): Promise<T>;
  /**
   * Runs a panel's queries as its page does, and counts the points. Throws on a query
   * that fails.
   */
  points(panel: Panel): Promise<number>;
  /** The status of a page. */
  status(path: string): Promise<number>;
}

/** Calls Grafana's HTTP API as its user `admin`. */
function grafanaAt(url: string, password: string): Grafana {
  const headers = {
    authorization: `Basic ${btoa(`admin:${password}`)}`,
    "content-type": "application/json",
  };
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`${url}${path}`, {
      ...init,
      headers,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
  const json = async <T>(path: string, init?: RequestInit): Promise<T> => {
    const response = await ask(path, init);
    const text = await response.text();
    if (response.ok) return JSON.parse(text);
    throw new Error(`${path}: ${response.status} ${text}`);
  };
  const points = async ({ title, targets = [] }: Panel): Promise<number> => {
    const datasource = { type: SOURCE, uid: SOURCE };
    const window = { maxDataPoints: 200, intervalMs: 10_000 };
    const queries = targets.map((each) => ({ ...each, ...window, datasource }));
    const { results }: QueryAnswer = await json("/api/ds/query", {
      method: "POST",
      body: JSON.stringify({ from: "now-15m", to: "now", queries }),
    });
    let points = 0;
    for (const { error, frames = [] } of Object.values(results)) {
      if (error !== undefined) throw new Error(`${title}: ${error}`);
      for (const { data } of frames) points += data.values[0]?.length ?? 0;
    }
    return points;
  };
  const status = async (path: string) => {
    const response = await ask(path);
    await response.body?.cancel();
    return response.status;
  };
  return { json, points, status };
}

async function assertDashboard(grafana: Grafana): Promise<void> {
  const { dashboard } = await grafana.json<{ dashboard: Dashboard }>(
    "/api/dashboards/uid/gateway",
  );
  const file: Dashboard = JSON.parse(
    await Deno.readTextFile(DASHBOARD),
  );
  assert.deepEqual(
    dashboard.panels.map(({ title }) => title),
    file.panels.map(({ title }) => title),
  );
  const panels = dashboard.panels.filter(({ type }) => type !== "row");
  for (const panel of panels) {
    await until(
      `data for "${panel.title}"`,
      async () => await grafana.points(panel) > 0,
    );
  }
  const { version } = await grafana.json<Health>("/api/health");
  say(`${panels.length} panels, Grafana ${version}`);
}

Deno.test("the profile observability", async (t) => {
  const [port = 0] = findFreePorts(1);
  await using stack = await startStack({
    COMPOSE_PROFILES: "observability",
    GRAFANA_PORT: String(port),
    SIMULATOR_TOKENS_PER_SECOND: "100",
    OTEL_DENO: "true",
  });
  await stack.scale(2, 1);
  const newKey = await stack.createKey();
  const load = new Load(stack, newKey.key, STREAMS);
  try {
    const password = await stack.secret("grafana_admin_password");
    const url = `http://127.0.0.1:${port}`;
    const grafana = grafanaAt(url, password);

    await t.step("Grafana accepts only its password", async () => {
      assert.equal(await grafanaAt(url, "admin").status("/api/org"), 401);
      assert.equal(await grafana.status("/api/org"), 200);
      const source = `/api/datasources/uid/${SOURCE}/health`;
      assert.equal((await grafana.json<Health>(source)).status, "OK");
    });

    await t.step("Prometheus finds every container", async () => {
      const targets =
        `/api/datasources/proxy/uid/${SOURCE}/api/v1/targets?state=active`;
      await until("all targets to be up", async () => {
        const { data } = await grafana.json<Targets>(targets);
        const up = data.activeTargets.map(({ health }) => health === "up");
        return up.length === TARGETS && !up.includes(false);
      });
    });

    await t.step(
      "the dashboard exists, and each panel has data",
      () => assertDashboard(grafana),
    );

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
    COMPOSE_PROFILES: "ollama",
    UPSTREAM_BASE_URL: "http://ollama:11434/v1",
    UPSTREAM_MODEL: OLLAMA_MODEL,
    UPSTREAM_DIALECT: "ollama",
    UPSTREAM_FIRST_TOKEN_SECONDS: "300",
  });
  const newKey = await stack.createKey();
  const ollama = (...args: string[]) =>
    stack.compose("exec", "-T", "ollama", "ollama", ...args);
  // An image for a machine without a registry contains its model.
  if (!(await ollama("list")).includes(OLLAMA_MODEL)) {
    await ollama("pull", OLLAMA_MODEL);
  }

  const ask = (kind: "whole" | "stream") =>
    send(stack, newKey.key, {
      kind,
      fields: {
        max_tokens: TOKENS_MAX,
        stream_options: kind === "stream" ? { include_usage: true } : null,
      },
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
