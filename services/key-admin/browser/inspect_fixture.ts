/** The checks of every page: the rules of axe, and that nothing is cut off. */
import assert from "node:assert/strict";
import axe from "axe-core";
import type { Page } from "playwright-core";
import { IS_WHOLE } from "./chromium_fixture.ts";

/**
 * The rules of axe that depend on colours or on the width; the others read only the
 * page.
 */
const LOOK_RULES = [
  "color-contrast",
  "scrollable-region-focusable",
  "target-size",
];
const LOOKS = [
  { name: "light", colorScheme: "light", width: 1280, rules: undefined },
  { name: "dark", colorScheme: "dark", width: 390, rules: LOOK_RULES },
] as const;
/** The height of the window in px. */
export const HEIGHT = 844;

/**
 * Serious and critical findings of axe, of some rules or of all. Each bar of a chart is
 * many elements without text or role.
 */
function audit(page: Page, runOnly?: string[]) {
  const options = JSON.stringify({ resultTypes: ["violations"], runOnly });
  return page.evaluate(`
    axe.run({ exclude: [["svg .reach"]] }, ${options}).then(({ violations }) =>
      violations.filter(({ impact }) => /serious|critical/.test(impact))
        .map(({ id, nodes }) => id + " " + nodes[0].html).join())`);
}

/**
 * A page, or a table in it, that has to be scrolled sideways, numbers on two lines, and
 * a button that is too narrow.
 */
export const OVERFLOW = `(() => {
  const tooWide = Array.from(document.querySelectorAll("html, .table-box"))
    .map((box) => box.scrollWidth - box.clientWidth)
    .filter((pixels) => pixels > 0)
    .map((pixels) => pixels + "px too wide");
  const boxes = document.querySelectorAll(".totals dd, td.num, .search button");
  const seen = Array.from(boxes).filter((box) => box.checkVisibility());
  const broken = seen.filter((box) => {
    const text = document.createRange();
    text.selectNodeContents(box);
    const room = box.clientWidth - 2 * parseFloat(getComputedStyle(box).paddingRight);
    return text.getClientRects().length > 1 ||
      box.matches("button") && text.getBoundingClientRect().width > room + 1;
  }).map((box) => box.innerText + " is broken");
  return tooWide.concat(broken).join();
})()`;

/**
 * Checks a page in light and wide, and in dark and narrow: all rules of axe, nothing
 * cut off. Screenshots go to the folder `CONSOLE_SCREENSHOTS`. The usual run leaves it
 * out: a look costs as much as ten clicks.
 */
export async function inspect(page: Page, scene: string): Promise<void> {
  if (!IS_WHOLE) return;
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
    assert.equal(await audit(page, rules), "", name);
    assert.equal(await page.evaluate(OVERFLOW), "", name);
  }
  await page.setViewportSize({ width: LOOKS[0].width, height: HEIGHT });
}
