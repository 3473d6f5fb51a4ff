import assert from "node:assert/strict";
import { findChromium, runSteps } from "./chromium_fixture.ts";

/** Each is a file of its own, and what it shows. */
const STEPS = [
  ["life", "keys are made, changed and deleted in a browser"],
  ["reading", "pages tell what they should, to eyes and to keyboards"],
  ["plain", "the console works without JavaScript"],
  ["looks", "axe finds nothing on any page: light, dark, narrow"],
] as const;

if (findChromium() === null) {
  // Said by name, so that a machine without a browser does not look tested.
  Deno.test("browser tests did NOT run: no Chromium on this machine", () => {
    assert.equal(Deno.env.get("CI"), undefined, "CI has to have a browser");
  });
}

for (const [name, shows] of findChromium() === null ? [] : STEPS) {
  const steps = new URL(`browser_${name}_steps_fixture.ts`, import.meta.url);
  Deno.test(shows, () => runSteps(steps));
}
