import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { findChromium } from "./chromium_fixture.ts";

const STEPS = fileURLToPath(
  new URL("browser_steps_fixture.ts", import.meta.url),
);

if (findChromium() === null) {
  // Said by name, so that a machine without a browser does not look tested.
  Deno.test("browser tests did NOT run: no Chromium on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have a browser");
  });
} else {
  Deno.test("the console in a browser: life of a key, keyboard, axe in three looks", async () => {
    // A process of its own: the driver needs rights that no other test gets.
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "--allow-all", "--no-check", STEPS],
      env: { NO_COLOR: "1" },
    }).output();
    const said = new TextDecoder().decode(stdout) +
      new TextDecoder().decode(stderr);
    assert.equal(code, 0, said);
  });
}
