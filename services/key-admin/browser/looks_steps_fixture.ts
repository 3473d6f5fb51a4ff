/**
 * Every page as people see it; those of answers on Try it are in
 * `try_steps_fixture.ts`. Run by `looks_long_test.ts`.
 */
import assert from "node:assert/strict";
import { browserTest, openWindow, type Visit } from "./site_fixture.ts";
import { storedKey } from "../console_fixture.ts";
import { countUse } from "../usage_fixture.ts";
import { HEIGHT, inspect, OVERFLOW } from "./inspect_fixture.ts";
import { SCENES } from "./scenes_fixture.ts";
import { setStage, type Stage } from "./stage_fixture.ts";

/**
 * Finds what does not fit in the font of the system, in those of Debian, and in wide
 * ones. Chromium takes the next font that is installed.
 */
const IN_FONTS = `[
  ["", ""],
  ["'Liberation Sans', Arial, sans-serif", ""],
  ["monospace", ""],
  ["Verdana, 'DejaVu Sans', sans-serif", "0.05em"],
].map(([font, spacing]) => {
  document.documentElement.style.setProperty("--font", font);
  document.body.style.letterSpacing = spacing;
  const found = ${OVERFLOW};
  return found && font + ": " + found;
}).join("")`;
const FONT_WIDTHS = [360, 600, 720, 900, 1180, 1280, 1600];

/** Tables fit with any font, with and without JavaScript. */
async function inspectTables(
  visit: Visit,
  { owner, ownerId, key, site, operator }: Stage,
): Promise<void> {
  for (const word of ["considerably ", "Donaudampfschifffahrt"]) {
    const description = word.repeat(200 / word.length);
    await storedKey(site, ownerId, { description });
  }
  for (const endpoint of ["chat", "messages", "embeddings"] as const) {
    await countUse(site, { ownerId, keyId: key.id }, {
      atMs: site.clock.nowMs,
      endpoint,
      counts: {
        requests: 123_456_789,
        errors: 0,
        promptTokens: 123_456_789_012,
        completionTokens: 12_345_678_901,
        cachedTokens: 12_345_678_901,
      },
    });
  }
  const { page: plain } = await openWindow(visit, {
    javaScriptEnabled: false,
    storageState: await owner.context().storageState(),
  });
  const ofKey = `/keys/${key.id}`;
  const pages = [
    [owner, ["/keys", "/audit", ofKey, "/requests", "/reference"]],
    [plain, ["/keys", ofKey]],
    [
      operator,
      ["/people", "/people/keys", "/people/requests", "/people/running"],
    ],
  ] as const;
  for (const [page, paths] of pages) {
    for (const path of paths) {
      await page.goto(path);
      for (const width of FONT_WIDTHS) {
        await page.setViewportSize({ width, height: HEIGHT });
        assert.equal(await page.evaluate(IN_FONTS), "", `${path} ${width}`);
      }
    }
  }
}

/**
 * Whether a scene is played: all are, or those of `CONSOLE_SCENES=key,usage` while
 * somebody works on a page. Some need what a scene before them has done.
 */
const isWanted = (name: string): boolean =>
  Deno.env.get("CONSOLE_SCENES")?.split(",").includes(name) ?? true;

/** The values of a bar: for the arrow keys, and under the pointer. */
async function readBars({ owner: page }: Stage): Promise<void> {
  await page.goto("/usage?range=30d&by=model");
  const chart = page.locator("[data-chart]").first();
  const shown = chart.locator("output");
  await chart.locator(".bars").focus();
  const last = await shown.innerText();
  assert.match(last, /^\w{3} \d+: .* \(in all [\d,]+\)$/);
  await page.keyboard.press("ArrowLeft");
  assert.notEqual(await shown.innerText(), last);
  await page.keyboard.press("End");
  assert.equal(await shown.innerText(), last);
  await chart.locator(".bars .reach").first().hover();
  assert.match(await shown.innerText(), /: none$/);
}

/** The script offers the reader's own time zone beside another one. */
async function useOwnZone({ owner: page }: Stage): Promise<void> {
  await page.goto("/usage?range=7d&zone=Asia/Tokyo");
  await page.getByText("Days in Asia/Tokyo").first().waitFor();
  await page.locator("[data-zone]").click();
  await page.waitForURL((url) =>
    !["", "Asia/Tokyo"].includes(url.searchParams.get("zone") ?? "")
  );
}

browserTest(
  "every page: axe in light and wide, in dark and narrow, and nothing cut off",
  async (visit: Visit, t) => {
    const stage = await setStage(visit);
    for (const { name, play } of SCENES) {
      if (!isWanted(name)) continue;
      await t.step(name, async () => {
        const page = await play(stage);
        await inspect(page, name);
        // Pages that show a value once ask for confirmation before they are left.
        await page.evaluate(
          `document.querySelector("input[type=checkbox][required]")?.click()`,
        );
      });
    }
    await t.step("the current page is marked without colours", async () => {
      const { owner: page } = stage;
      await page.goto("/usage");
      const weights = await page.evaluate(`["[aria-current]", "a"].map((link) =>
        getComputedStyle(
          document.querySelector("nav[aria-label=Main] " + link)).fontWeight)`);
      assert.deepEqual(weights, ["600", "400"]);
    });
    await t.step(
      "bars name their values for the keyboard and the pointer",
      () => readBars(stage),
    );
    await t.step("days in the reader's time zone", () => useOwnZone(stage));
    await t.step("tables with any font", () => inspectTables(visit, stage));
  },
  { hasPrices: true },
);
