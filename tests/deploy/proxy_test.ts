import assert from "node:assert/strict";
import {
  findChromium,
  runSteps,
} from "../../services/key-admin/chromium_fixture.ts";

const STEPS = new URL("proxy_steps_fixture.ts", import.meta.url);

if (findChromium() === null || !await hasCaddy()) {
  // Said by name, so that a machine without them does not look tested.
  Deno.test("the proxy was NOT tested: no Chromium or no Caddy on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have both");
  });
} else {
  Deno.test("API and console behind the front proxy", () => runSteps(STEPS));
}

async function hasCaddy(): Promise<boolean> {
  try {
    const { success } = await new Deno.Command("caddy", {
      args: ["version"],
      stdout: "null",
      stderr: "null",
    }).output();
    return success;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
