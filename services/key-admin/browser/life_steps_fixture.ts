import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import {
  browserTest,
  clickKey,
  makeKey,
  openWindow,
  signedIn,
  storeKey,
  type Visit,
} from "./site_fixture.ts";
import { PASSWORD } from "../console_fixture.ts";
import { until } from "../redis_fixture.ts";
import { linkPath } from "../domain/sign_in/links.ts";

/** What an owner does with keys, by clicking. Run by `life_test.ts`. */

const EMAIL = "ada@example.org";
const WAIT_MS = 10_000;
/** Of a click, from the corner of a button, px. */
const INSET = 10;

/** How many keys the owner has. */
async function countKeys(
  { site }: Visit,
  ownerId: string,
): Promise<number | null> {
  const { total } = await site.deps.keys.list(ownerId, {
    filter: "all",
    search: "",
    start: { at: "first" },
    rows: 10,
    day: "20261120",
  });
  return total;
}

async function firstOwner(visit: Visit): Promise<void> {
  const { site } = visit;
  const { page, context } = await openWindow(visit);
  const ownerId = await site.deps.owners.first();
  const secret = await site.deps.links.make({ kind: "set_up", ownerId });
  await page.goto(linkPath(secret));
  await page.getByLabel("E-mail").fill(EMAIL);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Create account" }).click();
  await page.waitForURL("**/keys");
  await context.close();
}

async function wholeLife(visit: Visit): Promise<void> {
  const { page, context, ownerId } = await signedIn(visit, "life@example.org");
  const dialog = page.getByRole("dialog");
  const value = await clickKey(page, "Billing service");
  await page.getByRole("button", { name: "Disable Billing service" }).click();
  await page.getByLabel("Also stop requests").check();
  await page.getByRole("button", { name: "Disable key" }).click();
  await page.getByText("running requests are being stopped").waitFor();
  assert.equal(visit.site.stops.length, 1);
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByText("The key is enabled").waitFor();

  await page.getByRole("link", { name: "Edit" }).click();
  await dialog.getByLabel("Description").fill("Billing, renamed");
  await dialog.getByLabel("Expires").selectOption("date");
  await dialog.getByLabel("Day", { exact: true }).fill("2099-01-31");
  await dialog.getByRole("button", { name: "Save changes" }).click();
  await page.getByRole("heading", { name: "Billing, renamed" }).waitFor();

  await page.getByRole("link", { name: "Rotate" }).click();
  await dialog.getByLabel("in 1 hour").check();
  await dialog.getByRole("button", { name: "Create the new key" }).click();
  assert.notEqual(await storeKey(page), value);

  await page.getByRole("link", { name: "Billing, renamed" }).first().click();
  await page.getByRole("link", { name: "Delete" }).click();
  await dialog.getByLabel("I understand").check();
  await dialog.getByRole("button", { name: "Delete key" }).click();
  await page.getByText("The key is deleted").waitFor();
  assert.equal(await countKeys(visit, ownerId), 1);
  await context.close();
}

/** Shown once: copied by a button, not left by mistake, not found by going back. */
async function shownOnce(visit: Visit): Promise<void> {
  const { page, context } = await signedIn(visit, "once@example.org");
  await context.grantPermissions(["clipboard-read", "clipboard-write"], {
    origin: visit.site.origin,
  });
  await page.getByRole("link", { name: "Create key" }).click();
  await page.getByLabel("Description").fill("Shown once");
  await page.getByRole("dialog").getByRole("button", { name: "Create key" })
    .click();
  const value = await page.getByLabel("API key").inputValue();
  await page.locator("button[data-copy=value]").click();
  await page.getByText("Copied").waitFor();
  assert.equal(await page.evaluate("navigator.clipboard.readText()"), value);

  // The gate: without the tick, neither the button nor a link leads away.
  await page.getByRole("button", { name: "Done" }).click();
  assert.ok(
    await page.locator("[data-stored]:invalid").isVisible(),
    "the browser asks for the tick",
  );
  const asked = page.waitForEvent("dialog");
  const clicked = page.getByRole("link", { name: "Usage" }).click();
  const question = await asked;
  assert.equal(question.type(), "beforeunload");
  await question.dismiss();
  await clicked;
  assert.equal(await page.getByLabel("API key").inputValue(), value);
  await page.getByLabel("I have stored it").check();
  // A question now would be answered with "stay".
  await page.getByRole("link", { name: "Usage" }).click();
  await page.waitForURL("**/usage");

  // Chromium does not even have the page to show: it would have to send the form again.
  await assert.rejects(page.goBack(), /ERR_CACHE_MISS/);
  await page.waitForURL("chrome-error://**");
  assert.ok(!(await page.content()).includes(value));
  await context.close();
}

/** Lets forms for a key through and holds their answers back. */
async function slowAnswers(page: Page) {
  const answers = { made: 0, release: () => {} };
  const held = new Promise<void>((release) => answers.release = release);
  await page.route(/\/keys$/, async (route) => {
    if (route.request().method() !== "POST") return await route.continue();
    const response = await route.fetch();
    answers.made++;
    await held;
    await route.fulfill({ response })
      .catch(() => {}); // Nobody waits for the first of two any more.
  });
  return answers;
}

/** With the script the second click sends nothing; without it, the server counts the form once. */
async function doubleClick(visit: Visit): Promise<void> {
  const cases = [
    { javaScriptEnabled: true, sent: 1, title: "Store your key now" },
    { javaScriptEnabled: false, sent: 2, title: "was already created" },
  ];
  for (const { javaScriptEnabled, sent, title } of cases) {
    const { page, context, ownerId } = await signedIn(
      visit,
      `double-${javaScriptEnabled}@example.org`,
      { javaScriptEnabled },
    );
    await page.goto("/keys/new");
    await page.getByLabel("Description").fill("Clicked twice");
    const answers = await slowAnswers(page);
    const button = page.getByRole("button", { name: "Create key" });
    await button.scrollIntoViewIfNeeded();
    const { x, y } = await button.boundingBox() ?? assert.fail("no button");
    // By the mouse itself: a locator waits for what the first click began.
    await page.mouse.click(x + INSET, y + INSET);
    await until(() => answers.made === 1, WAIT_MS);
    await page.mouse.click(x + INSET, y + INSET);
    await until(() => answers.made >= sent, WAIT_MS);
    answers.release();
    await page.getByRole("heading", { name: title }).waitFor();
    assert.equal(answers.made, sent);
    assert.equal(await countKeys(visit, ownerId), 1);
    await context.close();
  }
}

const MINUTE_MS = 60_000;
/** Below the time after which an idle session ends. */
const STEP_MS = 25 * MINUTE_MS;
const STEPS = 3;

/** Lets over an hour pass in a session that is used now and then. */
async function passAnHour({ site }: Visit, page: Page): Promise<void> {
  for (let step = 0; step < STEPS; step++) {
    site.clock.nowMs += STEP_MS;
    await page.goto("/keys");
  }
}

async function passwordAgain(visit: Visit): Promise<void> {
  const { page, context, ownerId } = await signedIn(visit, "hour@example.org");
  const { id } = await makeKey(visit.site, ownerId, { description: "Old" });
  const dialog = page.getByRole("dialog");
  const enter = async (password: string) => {
    await page.getByRole("heading", { name: "Confirm your password" })
      .waitFor();
    await page.getByLabel("Password").fill(password);
    await page.getByRole("button", { name: "Continue" }).click();
  };

  await passAnHour(visit, page);
  await page.goto(`/keys/${id}`);
  await page.getByRole("link", { name: "Rotate" }).click();
  await enter("not the password");
  await page.getByText("The password is not right").waitFor();
  await enter(PASSWORD);
  await page.getByRole("heading", { name: "Rotate this key" }).waitFor();
  await page.getByLabel("immediately").check();
  await page.getByRole("button", { name: "Create the new key" }).click();
  await storeKey(page);

  // Opened in time and sent too late: nothing is deleted before the password.
  await page.goto(`/keys/${id}`);
  await page.getByRole("link", { name: "Delete" }).click();
  await dialog.getByLabel("I understand").check();
  const other = await context.newPage();
  await passAnHour(visit, other);
  await dialog.getByRole("button", { name: "Delete key" }).click();
  await enter(PASSWORD);
  assert.notEqual(await visit.site.deps.keys.get(ownerId, id), null);
  await page.getByLabel("I understand").check();
  await page.getByRole("button", { name: "Delete key" }).click();
  await page.getByText("The key is deleted").waitFor();
  assert.equal(await visit.site.deps.keys.get(ownerId, id), null);

  await passAnHour(visit, page);
  await page.getByRole("link", { name: "Create key" }).first().click();
  await enter(PASSWORD);
  await page.getByRole("heading", { name: "Create key" }).waitFor();
  await context.close();
}

browserTest("keys in a browser", async (visit, t) => {
  const steps: [name: string, step: (visit: Visit) => Promise<void>][] = [
    ["the first owner signs up", firstOwner],
    ["the whole life of a key", wholeLife],
    ["a value that is shown once", shownOnce],
    ["a double click on Create makes one key", doubleClick],
    ["after an hour the password is asked again", passwordAgain],
  ];
  for (const [name, step] of steps) await t.step(name, () => step(visit));
});
