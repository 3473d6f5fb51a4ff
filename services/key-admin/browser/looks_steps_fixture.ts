import assert from "node:assert/strict";
import axe from "axe-core";
import type { Page } from "playwright-core";
import {
  browserTest,
  makeKey,
  openWindow,
  type Visit,
} from "./site_fixture.ts";
import { SCENES, setStage } from "./scenes_fixture.ts";

/**
 * Every page and dialog in three looks: all rules of axe, nothing cut off, and
 * pictures to look at in the folder `CONSOLE_SCREENSHOTS`.
 */

interface Look {
  name: string;
  colorScheme: "light" | "dark";
  width: number;
  /** The only rule of axe to try. */
  rule?: string;
}

const LOOKS: readonly Look[] = [
  { name: "light", colorScheme: "light", width: 1280 },
  // Differs in its colours only.
  { name: "dark", colorScheme: "dark", width: 1280, rule: "color-contrast" },
  { name: "narrow", colorScheme: "light", width: 390 },
];
const HEIGHT = 844;

/** Widths at which the layout changes, or is about to. */
const WIDTHS = [360, 720, 900, 901, 1040, 1180, 1600];
/** Pages with tables, which are what gets too wide. */
const WIDE_SCENES = ["keys", "key", "audit", "account", "usage-table"];

interface Finding {
  id: string;
  impact: string;
  nodes: { html: string }[];
}

/** Puts a page that is shown into another look, as the system's setting does. */
async function dress(
  page: Page,
  { colorScheme, width }: Look,
): Promise<void> {
  await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
  await page.setViewportSize({ width, height: HEIGHT });
  await page.evaluate(
    "Promise.all(document.getAnimations().map((a) => a.finish()))",
  );
}

/** Serious and critical findings, in words. */
async function audit(
  page: Page,
  name: string,
  { rule }: Pick<Look, "rule">,
): Promise<string[]> {
  const options = JSON.stringify({
    resultTypes: ["violations"],
    ...rule === undefined ? {} : { runOnly: [rule] },
  });
  const found: Finding[] = JSON.parse(String(
    await page.evaluate(
      `axe.run(document, ${options})` +
        ".then((result) => JSON.stringify(result.violations))",
    ),
  ));
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${name}: ${id} ${nodes[0]?.html}`);
}

/** A page, or a table in it, that has to be scrolled sideways. */
async function overflow(page: Page, name: string): Promise<string[]> {
  const pixels = await page.evaluate(
    `Math.max(...[document.documentElement, ...document.querySelectorAll(".table-box")]
      .map((box) => box.scrollWidth - box.clientWidth))`,
  );
  return Number(pixels) > 0 ? [`${name}: ${pixels}px too wide`] : [];
}

async function inspect(page: Page, scene: string): Promise<string[]> {
  const folder = Deno.env.get("CONSOLE_SCREENSHOTS");
  const findings: string[] = [];
  // Evaluated by the debugger, so the page's own policy need not allow it.
  await page.evaluate(axe.source);
  for (const look of LOOKS) {
    await dress(page, look);
    const name = `${scene}-${look.name}`;
    if (folder !== undefined) {
      await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
    }
    findings.push(
      ...await audit(page, name, look),
      ...await overflow(page, name),
    );
  }
  if (!WIDE_SCENES.includes(scene)) return findings;
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: HEIGHT });
    findings.push(...await overflow(page, `${scene} at ${width}`));
  }
  return findings;
}

/** Pages that show something once ask before they are left. */
async function letGo(page: Page): Promise<void> {
  const stored = page.getByLabel("I have stored");
  if (await stored.count() > 0) await stored.check();
}

browserTest(
  "every page: axe in light, dark and narrow, and nothing cut off",
  async (visit: Visit, t) => {
    const stage = await setStage(visit);
    for (const [scene, play] of SCENES) {
      await t.step(scene, async () => {
        const page = await play(stage);
        assert.deepEqual(await inspect(page, scene), []);
        await letGo(page);
      });
    }
  },
);

/** Fonts by what they resolve to here, and one whose letters are wider than its figures. */
const FONTS = [
  { font: "", spacing: "" },
  { font: "serif", spacing: "" },
  { font: "monospace", spacing: "" },
  { font: "Verdana, 'DejaVu Sans', sans-serif", spacing: "0.05em" },
];
const FONT_WIDTHS = [390, 600, 900, 1180, 1280];

browserTest(
  "tables hold with any font, with and without JavaScript",
  async (visit: Visit) => {
    const { owner, ownerId, key, site } = await setStage(visit);
    for (const word of ["considerably ", "Donaudampfschifffahrt"]) {
      const description = word.repeat(200 / word.length);
      await makeKey(site, ownerId, { description });
    }
    const plain = await openWindow(visit, {
      javaScriptEnabled: false,
      storageState: await owner.context().storageState(),
    });
    const findings: string[] = [];
    for (
      const [mode, page] of [["script", owner], ["plain", plain.page]] as const
    ) {
      for (const path of ["/keys", "/audit", `/keys/${key.id}`]) {
        await page.goto(path);
        for (const { font, spacing } of FONTS) {
          await page.evaluate(`(() => {
            document.documentElement.style.setProperty("--font", "${font}");
            document.body.style.letterSpacing = "${spacing}";
          })()`);
          for (const width of FONT_WIDTHS) {
            await page.setViewportSize({ width, height: HEIGHT });
            const name = `${path} ${mode} ${font} ${width}`;
            findings.push(...await overflow(page, name));
          }
        }
      }
    }
    assert.deepEqual(findings, []);
  },
);
