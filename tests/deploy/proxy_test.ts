import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { findChromium } from "../../services/key-admin/chromium_fixture.ts";

const STEPS = fileURLToPath(new URL("proxy_steps_fixture.ts", import.meta.url));

if (findChromium() === null || !await hasCaddy()) {
  // Said by name, so that a machine without them does not look tested.
  Deno.test("the proxy was NOT tested: no Chromium or no Caddy on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have both");
  });
} else {
  Deno.test("API and console behind the front proxy", async () => {
    // A process of its own: the driver needs rights that no other test gets.
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "--allow-all", "--no-check", STEPS],
      env: { NO_COLOR: "1" },
    }).output();
    const decoder = new TextDecoder();
    assert.equal(code, 0, decoder.decode(stdout) + decoder.decode(stderr));
  });
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
