import assert from "node:assert/strict";
import {
  findChromium,
  runSteps,
} from "../../services/key-admin/chromium_fixture.ts";

const STEPS = new URL("browser_key_steps_fixture.ts", import.meta.url);

if (findChromium() === null) {
  // Said by name, so that a machine without a browser does not look tested.
  Deno.test("browser test did NOT run: no Chromium on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have a browser");
  });
} else {
  Deno.test("a key made in a browser works at the edges", () =>
    runSteps(STEPS));
}
