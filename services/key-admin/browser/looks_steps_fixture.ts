import assert from "node:assert/strict";
import axe from "axe-core";
import type { Page } from "playwright-core";
import { browserTest, openWindow, type Visit } from "./site_fixture.ts";
import { storedKey, useKey } from "../console_fixture.ts";
import { SCENES, setStage, type Stage } from "./scenes_fixture.ts";

/**
 * Checks every page in light and wide, and in dark and narrow: all rules of axe,
 * nothing cut off. Screenshots go to the folder `CONSOLE_SCREENSHOTS`.
 */

/** The rules of axe that depend on colours or on the width; the others read only the page. */
const LOOK_RULES = [
  ...["color-contrast", "scrollable-region-focusable", "target-size"],
];
const LOOKS = [
  { name: "light", colorScheme: "light", width: 1280, rules: undefined },
  { name: "dark", colorScheme: "dark", width: 390, rules: LOOK_RULES },
] as const;
const HEIGHT = 844;

interface Finding {
  id: string;
  impact: string;
  nodes: { html: string }[];
}

/** Serious and critical findings of axe, of some rules or of all. */
async function audit(page: Page, runOnly?: string[]): Promise<string[]> {
  const options = JSON.stringify({ resultTypes: ["violations"], runOnly });
  // Each bar of a chart is many elements without text or role.
  const context = JSON.stringify({ exclude: [["svg g"]] });
  const result = await page.evaluate(
    `axe.run(${context}, ${options})` +
      ".then((result) => JSON.stringify(result.violations))",
  );
  const found: Finding[] = JSON.parse(String(result));
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id} ${nodes[0]?.html}`);
}

/** A page, or a table in it, that has to be scrolled sideways, and numbers on two lines. */
const OVERFLOW = `[
  ...[document.documentElement, ...document.querySelectorAll(".table-box")]
    .map((box) => box.scrollWidth - box.clientWidth)
    .filter((pixels) => pixels > 0)
    .map((pixels) => pixels + "px too wide"),
  ...[...document.querySelectorAll(".totals dd, td.num")].filter((number) => {
    const text = document.createRange();
    text.selectNodeContents(number);
    return text.getClientRects().length > 1;
  }).map((number) => number.innerText + " is broken"),
].join()`;

async function inspect(page: Page, scene: string): Promise<void> {
  const folder = Deno.env.get("CONSOLE_SCREENSHOTS");
  // The debugger evaluates it, so the page's policy need not allow it.
  await page.evaluate(axe.source);
  for (const { name, colorScheme, width, rules } of LOOKS) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: HEIGHT });
    if (folder !== undefined) {
      const path = `${folder}/${scene}-${name}.png`;
      await page.screenshot({ path, fullPage: true });
    }
    assert.deepEqual(await audit(page, rules), [], name);
    assert.equal(await page.evaluate(OVERFLOW), "", name);
  }
}

/** The system's font, those of Debian, and wide ones. Chromium takes the next that is installed. */
const FONTS = [
  { font: "", spacing: "" },
  { font: "'Liberation Sans', Arial, sans-serif", spacing: "" },
  { font: "monospace", spacing: "" },
  { font: "Verdana, 'DejaVu Sans', sans-serif", spacing: "0.05em" },
];
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
  await useKey(site, { ownerId, keyId: key.id }, site.clock.nowMs, {
    ...{ requests: 123_456_789, errors: 0 },
    ...{ promptTokens: 123_456_789_012, completionTokens: 12_345_678_901 },
  });
  const { page: plain } = await openWindow(visit, {
    javaScriptEnabled: false,
    storageState: await owner.context().storageState(),
  });
  const ofKey = `/keys/${key.id}`;
  const pages = [
    [owner, ["/keys", "/audit", ofKey, `${ofKey}/requests`, "/reference"]],
    [plain, ["/keys", ofKey]],
    [operator, ["/people", "/people/keys"]],
  ] as const;
  for (const [page, paths] of pages) {
    for (const path of paths) await inspectFonts(page, path);
  }
}

async function inspectFonts(page: Page, path: string): Promise<void> {
  await page.goto(path);
  for (const width of FONT_WIDTHS) {
    await page.setViewportSize({ width, height: HEIGHT });
    const found = await page.evaluate(`
      ${JSON.stringify(FONTS)}.map(({ font, spacing }) => {
        document.documentElement.style.setProperty("--font", font);
        document.body.style.letterSpacing = spacing;
        return ${OVERFLOW} && \`\${font}: \${${OVERFLOW}}\`;
      }).join("")
    `);
    assert.equal(found, "", `${path} ${width}`);
  }
}

browserTest(
  "every page: axe in light and wide, in dark and narrow, and nothing cut off",
  async (visit: Visit, t) => {
    const stage = await setStage(visit);
    for (const [scene, play] of SCENES) {
      await t.step(scene, async () => {
        const page = await play(stage);
        await inspect(page, scene);
        // Pages that show a value once ask for confirmation before they are left.
        await page.evaluate(
          `document.querySelector("input[type=checkbox][required]")?.click()`,
        );
      });
    }
    await t.step("tables with any font", () => inspectTables(visit, stage));
  },
);
