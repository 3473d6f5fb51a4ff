/**
 * Guarantee: Prometheus accepts the alerts and its configuration, and each alert
 * fires when it should and not otherwise.
 */
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { canRun, startProcess } from "../support/process.ts";
import { readSource } from "../support/source_files.ts";
import { ALERTS } from "./files.ts";

const FOLDER = fileURLToPath(
  new URL("../../deploy/observability", import.meta.url),
);
const CASES = "deploy/observability/alerts_test.yml";

Deno.test("each alert has a case where it fires and one where it must not", () => {
  const expectations = readSource(CASES).split(/alertname: /).slice(1)
    .map((text) => {
      const [name = ""] = /^\w+/.exec(text) ?? [];
      return `${name} ${/exp_alerts: \[\]/.test(text) ? "silent" : "fires"}`;
    });
  const wanted = ALERTS.flatMap(({ name }) => [
    `${name} fires`,
    `${name} silent`,
  ]);
  assert.deepEqual([...new Set(expectations)].sort(), wanted.sort());
});

if (await canRun("promtool", "--version")) {
  for (
    const args of [
      ["check", "config", "prometheus.yml"],
      ["test", "rules", "alerts_test.yml"],
    ]
  ) {
    Deno.test(`promtool ${args.join(" ")}`, async () => {
      await using promtool = startPromtool(args);
      const { success } = await promtool.exited;
      assert.ok(success, promtool.output());
    });
  }
} else {
  // The name says so, so that a run without Prometheus does not look complete.
  Deno.test("alerts were NOT tested: no promtool on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have promtool");
  });
}

function startPromtool(args: readonly string[]) {
  return startProcess({ command: "promtool", args: [...args], cwd: FOLDER });
}
