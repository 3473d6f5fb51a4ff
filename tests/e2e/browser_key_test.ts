import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { findChromium } from "../../services/key-admin/chromium_fixture.ts";

const STEPS = fileURLToPath(
  new URL("browser_key_steps_fixture.ts", import.meta.url),
);

if (findChromium() === null) {
  // Said by name, so that a machine without a browser does not look tested.
  Deno.test("browser test did NOT run: no Chromium on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have a browser");
  });
} else {
  Deno.test("a key made in a browser works at the edges", async () => {
    // A process of its own: the driver needs rights that no other test gets.
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "--allow-all", "--no-check", STEPS],
      env: { NO_COLOR: "1" },
    }).output();
    const decoder = new TextDecoder();
    assert.equal(code, 0, decoder.decode(stdout) + decoder.decode(stderr));
  });
}
