// Promises: a tab of "Try it" that is reloaded, while it waits for an answer, reads it
// or has read it, shows that answer and its form, from one run; Stop ends the run; and
// nothing that the tab keeps is a key.
import assert from "node:assert/strict";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { findChromium } from "../../../services/key-admin/browser/chromium_fixture.ts";
import { PASSWORD } from "../../../services/key-admin/forms_fixture.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { until, waitFor } from "../../support/wait_for.ts";

const PATIENT_MS = 60_000;
const SCREENSHOTS = Deno.env.get("CONSOLE_SCREENSHOTS");

const part = (page: Page, name: string) =>
  page.locator(`[data-part="${name}"]`);
const textOf = (page: Page, name: string) => part(page, name).innerText();
const press = (page: Page, name: string) =>
  page.getByRole("button", { name, exact: true }).click();
const messageOf = (page: Page) => page.getByLabel("Message", { exact: true });

/** Resolves once an answer has this many characters, or more. */
const hasRead = (page: Page, chars: number) =>
  waitFor(async () => (await textOf(page, "content")).length > chars, {
    what: "more of the answer",
    timeoutMs: PATIENT_MS,
  });

/** How many tokens all keys were charged for today: a second run would add its own. */
async function tokensOf(page: Page): Promise<number> {
  const usage = await page.context().newPage();
  await usage.goto("/usage");
  const text = await usage.locator(".totals").first().innerText();
  await usage.close();
  const tokens = /Output tokens\s+([\d,]+)/i.exec(text)?.[1];
  return Number(tokens?.replaceAll(",", "") ?? assert.fail(text));
}

/** What runs now, as operators see it. */
async function runningOf(gateway: LaunchedGateway): Promise<number> {
  const { requests } = JSON.parse(await gateway.command("running", "list"));
  return requests.length;
}

async function look(page: Page, name: string): Promise<void> {
  if (SCREENSHOTS === undefined) return;
  for (const { look, colorScheme, width } of LOOKS) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 844 });
    const path = `${SCREENSHOTS}/${name}-${look}.png`;
    await page.screenshot({ path, fullPage: true });
  }
  await page.setViewportSize({ width: 1280, height: 844 });
}
const LOOKS = [
  { look: "light", colorScheme: "light", width: 1280 },
  { look: "dark", colorScheme: "dark", width: 1280 },
  { look: "narrow", colorScheme: "light", width: 390 },
] as const;

/** Each reload goes on where the answer is, and the last one shows it whole. */
async function whileItRuns(page: Page): Promise<void> {
  const before = await tokensOf(page);
  const prompt = "[simulator: 150 tokens, 25 tokens per second]";
  await messageOf(page).fill(prompt);
  await page.getByLabel("System prompt").fill("Be kind");
  await press(page, "Send");
  await hasRead(page, 10);
  let seen = await textOf(page, "content");
  for (let reloads = 0; reloads < 3; reloads += 1) {
    await page.reload();
    await hasRead(page, seen.length);
    const now = await textOf(page, "content");
    assert.ok(now.startsWith(seen), `${now}\nafter\n${seen}`);
    seen = now;
  }
  assert.equal(await messageOf(page).inputValue(), prompt);
  assert.equal(await page.getByLabel("System prompt").inputValue(), "Be kind");
  await look(page, "running");
  await page.getByText("Continue the conversation").waitFor();
  const whole = await textOf(page, "content");
  const facts = ["first", "total", "output", "request", "finish"];
  const shown = await Promise.all(facts.map((name) => textOf(page, name)));
  await page.reload();
  await page.getByText("Continue the conversation").waitFor();
  assert.equal(await textOf(page, "content"), whole);
  const again = await Promise.all(facts.map((name) => textOf(page, name)));
  assert.deepEqual(again, shown);
  await look(page, "whole");
  await until(async () => await tokensOf(page) === before + 150);
  await press(page, "Continue the conversation");
  const history = await page.getByLabel("Earlier messages (JSON)").inputValue();
  assert.deepEqual(JSON.parse(history), [
    { role: "user", content: prompt },
    { role: "assistant", content: whole },
  ]);
}

/** Before anybody knows the id of the answer: it is not run twice. */
async function whileItWaits(page: Page): Promise<void> {
  const before = await tokensOf(page);
  await messageOf(page).fill(
    "[simulator: first token 3000 ms, 5 tokens]",
  );
  await page.getByLabel("Earlier messages (JSON)").fill("");
  const sent = page.waitForRequest(/\/try\/stream/);
  await press(page, "Send");
  await sent;
  // If the request has not reached an edge yet, the next one is the first.
  await page.reload();
  await page.getByText("Continue the conversation").waitFor();
  await until(async () => await tokensOf(page) === before + 5);
}

/** Stop ends the run, which a reload would not do, and shows nothing again. */
async function stopped(page: Page, gateway: LaunchedGateway): Promise<void> {
  const prompt = "[simulator: 4000 tokens, 20 tokens per second]";
  await messageOf(page).fill(prompt);
  await press(page, "Send");
  await hasRead(page, 10);
  await page.reload();
  await hasRead(page, 20);
  assert.equal(await runningOf(gateway), 1);
  await press(page, "Stop");
  await page.getByText("Stopped by you").waitFor();
  await until(async () => await runningOf(gateway) === 0);
  await page.reload();
  await page.getByText("Nothing sent yet").waitFor();
  // Before its first token.
  await messageOf(page).fill("[simulator: first token 2000 ms, 4000 tokens]");
  await press(page, "Send");
  await until(async () => await runningOf(gateway) === 1);
  await press(page, "Stop");
  await page.getByText("Stopped by you").waitFor();
  assert.ok(await page.getByRole("button", { name: "Send" }).isEnabled());
  await until(async () => await runningOf(gateway) === 0);
}

/** What the tab keeps has no key, and is gone for whoever signs in next. */
async function keepsNoKey(page: Page): Promise<void> {
  await messageOf(page).fill("[simulator: 5 tokens] a private matter");
  await press(page, "Send");
  await page.getByText("Continue the conversation").waitFor();
  const kept = String(
    await page.evaluate(
      "JSON.stringify([{ ...sessionStorage }, { ...localStorage }])",
    ),
  );
  assert.match(kept, /a private matter/);
  assert.doesNotMatch(kept, /sk-|sid/);
}

async function signIn(
  context: BrowserContext,
  gateway: LaunchedGateway,
): Promise<Page> {
  const page = await context.newPage();
  const setUp = gateway.state.setup_url ?? assert.fail("no set-up link");
  await page.goto(new URL(setUp).pathname);
  await page.locator("[name=email]").fill("ada@example.org");
  await page.locator("[name=new_password]").fill(PASSWORD);
  await page.locator("form [type=submit]").first().click();
  await page.waitForURL((url) => !url.href.includes(setUp));
  await page.goto("/try");
  return page;
}

Deno.test({
  name: "Try it survives a reload",
  // The driver keeps pipes and timers until its process ends.
  sanitizeOps: false,
  sanitizeResources: false,
  fn: async (t) => {
    await using gateway = await startGateway("launched");
    const executablePath = findChromium() ?? assert.fail("no Chromium");
    const browser = await chromium.launch({
      executablePath,
      args: ["--no-sandbox", "--disable-gpu"],
    });
    try {
      const context = await browser.newContext({
        baseURL: gateway.state.console_url,
        viewport: { width: 1280, height: 844 },
      });
      context.setDefaultTimeout(PATIENT_MS);
      const faults: string[] = [];
      context.on("weberror", (error) => faults.push(String(error.error())));
      const page = await signIn(context, gateway);
      await t.step(
        "while the answer runs, and after it",
        () => whileItRuns(page),
      );
      await t.step(
        "while it waits for the first token",
        () => whileItWaits(page),
      );
      await t.step("Stop ends the run", () => stopped(page, gateway));
      await t.step("no key is kept in the tab", () => keepsNoKey(page));
      assert.deepEqual(faults, []);
    } finally {
      await browser.close();
    }
  },
});
