/**
 * The lifecycle of keys in the browser. Run by `console_test.ts`, and whole by
 * `console_long_test.ts`.
 */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { storedKey } from "../console_fixture.ts";
import { PASSWORD } from "../forms_fixture.ts";
import { until } from "../redis_fixture.ts";
import { IS_WHOLE } from "./chromium_fixture.ts";
import {
  browserTest,
  CLIPBOARD,
  follow,
  openWindow,
  press,
  says,
  signedIn,
  storeKey,
  title,
  type Visit,
} from "./site_fixture.ts";

/**
 * These steps run in the same process: starting a browser costs as much as twenty
 * pages.
 */
import "./try_steps_fixture.ts";

/** Distance of a click from the corner of a button, in px. */
const INSET = 10;

/** Takes a key through its life, with or without the script. */
async function wholeLife(
  visit: Visit,
  { javaScriptEnabled = true } = {},
) {
  const email = `life-${javaScriptEnabled}@example.org`;
  const { page } = await signedIn(visit, email, { javaScriptEnabled });
  await follow(page, "Create key");
  await page.getByLabel("Description").fill("Billing service");
  await page.getByLabel("Expires").fill("2099-01-31");
  await press(page, "Create key");
  const value = await storeKey(page);
  await follow(page, "Disable Billing service");
  await press(page, "Disable key");
  await says(page, "The key is disabled");
  await press(page, "Enable Billing service");
  await says(page, "The key is enabled");
  await title(page, "API keys");
  await follow(page, "Billing service");
  await says(page, javaScriptEnabled ? "Jan 31, 2099" : "2099-01-31");

  await follow(page, "Disable Billing service");
  await page.getByLabel("Also stop requests").check();
  await press(page, "Disable key");
  await says(page, "running requests are being stopped");
  assert.ok(visit.site.stops.length > 0);
  await press(page, "Enable Billing service");
  await says(page, "The key is enabled");

  await follow(page, "Edit");
  await page.getByLabel("Description").fill("Billing, renamed");
  await page.getByLabel("Tokens per day").fill("10000");
  const model = page.getByLabel("mistral-large");
  assert.ok(!await model.isVisible(), "all models, so none to choose");
  await page.getByLabel("Only these models").check();
  await model.check();
  await press(page, "Save changes");
  await says(page, "Your changes are saved");
  await title(page, "Billing, renamed");
  await says(page, "10,000");
  await says(page, '"model": "mistral-large"');

  await follow(page, "Rotate");
  await page.getByLabel("in 7 days").check();
  await press(page, "Rotate key");
  await says(page, "stops working in 7 days");
  assert.notEqual(await storeKey(page), value);

  const old = page.getByRole("row").filter({ hasText: "Replaced by" });
  await old.getByRole("link", { name: "Billing, renamed" }).first().click();
  await says(page, value.slice(-4));
  await follow(page, "Delete");
  await page.getByLabel("I understand").check();
  await press(page, "Delete key");
  await says(page, "The key is deleted");
  assert.equal(await page.locator("tbody tr").count(), 1);
}

/**
 * A value is shown once: a button copies it, leaving the page needs a confirmation, and
 * going back does not show it.
 */
async function shownOnce(visit: Visit): Promise<void> {
  const { page } = await signedIn(visit, "once@example.org", CLIPBOARD);
  await follow(page, "Create key");
  await page.getByLabel("Description").fill("Shown once");
  await press(page, "Create key");
  const value = await page.locator("#value").innerText();
  await page.locator("button[data-copy=value]").click();
  await says(page, "Copied");
  assert.equal(await page.evaluate("navigator.clipboard.readText()"), value);

  // Until the box is ticked, neither the button nor a link leads away.
  await press(page, "Done");
  assert.ok(await page.locator("input:invalid").isVisible());
  const dialog = page.waitForEvent("dialog");
  const clicked = follow(page, "Usage");
  const question = await dialog;
  assert.equal(question.type(), "beforeunload");
  await question.dismiss();
  await clicked;
  assert.equal(await page.locator("#value").innerText(), value);
  await page.getByLabel("I have stored it").check();
  // A confirmation dialog would be answered with "stay".
  await follow(page, "Usage");
  await page.waitForURL("**/usage");

  // Chromium no longer has the page: it would have to send the form again.
  await assert.rejects(page.goBack(), /ERR_CACHE_MISS/);
  await page.waitForURL("chrome-error://**");
  assert.ok(!(await page.content()).includes(value));
}

/** The second click, while the answer to the first one is on its way, sends nothing. */
async function doubleClick(visit: Visit): Promise<void> {
  const { page } = await signedIn(visit, "twice@example.org");
  await page.goto("/keys/new");
  await page.getByLabel("Description").fill("Clicked twice");
  let posts = 0;
  const gate = Promise.withResolvers<void>();
  await page.route(/\/keys\/new$/, async (route) => {
    const response = await route.fetch();
    posts++;
    await gate.promise;
    await route.fulfill({ response });
  });
  const button = page.getByRole("button", { name: "Create key" });
  await button.scrollIntoViewIfNeeded();
  const { x, y } = await button.boundingBox() ?? assert.fail("no button");
  // A raw mouse click: a locator would wait for the effect of the first one.
  await page.mouse.click(x + INSET, y + INSET);
  await until(() => posts === 1);
  await page.mouse.click(x + INSET, y + INSET);
  gate.resolve();
  await says(page, "Store your key now");
  assert.equal(posts, 1);
}

/**
 * An owner whom an operator invited signs in elsewhere, loses the second factor, and
 * learns who removed it.
 */
async function inviteAndHelp(visit: Visit): Promise<void> {
  const { owners } = visit.site.deps;
  const options = { javaScriptEnabled: false };
  const email = "invited@example.org";
  const op = await signedIn(visit, "op@example.org", options);
  const operator = op.page;
  assert.equal(await operator.getByText("People").count(), 0);
  await owners.giveRole(op.ownerId);
  await operator.reload();
  await follow(operator, "People");
  await operator.getByText("Invite somebody").click();
  await operator.getByLabel("E-mail", { exact: true }).fill(email);
  await press(operator, "Create link");
  const link = await operator.locator("#value").innerText();
  await operator.getByLabel("I have passed it on").check();
  await press(operator, "Done");
  await says(operator, "Not signed in yet");

  const { page } = await openWindow(visit, options);
  await page.goto(link);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await press(page, "Create account");
  await title(page, "Create your first key");
  const ownerId = await owners.find(email) ?? assert.fail();
  await owners.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");

  await operator.reload();
  await operator.getByText("Remove second factor").first().click();
  await press(operator, "Remove second factor");
  await says(operator, "The change is in the owner's audit log and in yours");
  await page.goto("/usage");
  await says(page, "An operator (op@example.org) removed your second factor");
  await press(page, "Dismiss");
  await title(page, "Account");
  assert.equal(await page.getByText("removed your second factor").count(), 0);
}

/**
 * Shows the times of a key on two sides of the date line, and to a reader whose
 * language is not English.
 */
async function zones(visit: Visit): Promise<void> {
  const endMs = Date.UTC(2099, 0, 31, 23, 59, 59);
  const cases = [
    {
      timezoneId: "Asia/Tokyo",
      locale: "en-US",
      endDate: "Feb 1, 2099",
      dateLocale: "en-US",
    },
    {
      timezoneId: "America/Los_Angeles",
      locale: "en-US",
      endDate: "Jan 31, 2099",
      dateLocale: "en-US",
    },
    {
      timezoneId: "Europe/Berlin",
      locale: "de-DE",
      endDate: "1 Feb 2099",
      dateLocale: "en-GB",
    },
  ] as const;
  for (const { timezoneId, locale, endDate, dateLocale } of cases) {
    const reader = { timezoneId, locale };
    const { page, ownerId } = await signedIn(visit, "zone@example.org", reader);
    const key = await storedKey(visit.site, ownerId, { expiresAtMs: endMs });
    await page.goto(`/keys/${key.id}`);
    await says(page, endDate);
    const created = page.locator("time[data-as=minute]").first();
    const inZone = new Intl.DateTimeFormat(dateLocale, {
      year: "numeric",
      month: "short",
      day: "numeric",
      hour: "numeric",
      minute: "2-digit",
      timeZoneName: "short",
      timeZone: timezoneId,
    });
    assert.equal(await created.textContent(), inZone.format(key.createdAtMs));
  }
}

const TABS_MAX = 40;

/** Presses Tab until the element with this name has the focus. */
async function tabTo(page: Page, name: string): Promise<void> {
  const field = page.getByLabel(name, { exact: true })
    .or(page.getByRole("link", { name, exact: true }))
    .or(page.getByRole("button", { name, exact: true }))
    .and(page.locator(":focus"));
  for (let n = 0; n < TABS_MAX; n++) {
    await page.keyboard.press("Tab");
    if (await field.count() > 0) return;
  }
  assert.fail(`Tab does not reach ${name}`);
}

/** Signs in, creates, stores and disables a key without a mouse. */
async function keyboardOnly(visit: Visit): Promise<void> {
  const { owners, hasher } = visit.site.deps;
  const email = "keyboard@example.org";
  const ownerId = await owners.ensure(email);
  await owners.setPassword(ownerId, await hasher.hash(PASSWORD));
  const { page } = await openWindow(visit);
  await page.goto("/keys");
  await page.getByLabel("E-mail").focus();
  await page.keyboard.type(email);
  await tabTo(page, "Password");
  await page.keyboard.type(PASSWORD);
  await page.keyboard.press("Enter");
  await title(page, "Create your first key");
  const reach = async (name: string) => {
    await tabTo(page, name);
    await page.keyboard.press("Enter");
  };
  await reach("Skip to content");
  await reach("Create key");
  await title(page, "Create key");
  await page.keyboard.type("By keyboard");
  await reach("Create key");
  await title(page, "Store your key now");
  await tabTo(page, "I have stored it");
  await page.keyboard.press("Space");
  await reach("Done");
  await title(page, "API keys");
  await reach("By keyboard");
  await title(page, "By keyboard");
  await reach("Disable By keyboard");
  await title(page, "Disable this key?");
  await reach("Disable key");
  await says(page, "The key is disabled");
}

/** Something that people do, and whether a test without a browser shows it, too. */
interface Step {
  name: string;
  step: (visit: Visit) => Promise<void>;
  isShownWithout?: true;
}

const STEPS: Step[] = [
  { name: "the lifecycle of a key", step: (visit) => wholeLife(visit) },
  {
    name: "the same without JavaScript",
    step: (visit) => wholeLife(visit, { javaScriptEnabled: false }),
    isShownWithout: true,
  },
  {
    name: "an operator invites and helps, without JavaScript",
    step: inviteAndHelp,
    isShownWithout: true,
  },
  { name: "a value that is shown once", step: shownOnce },
  { name: "a double click on Create sends one form", step: doubleClick },
  { name: "times are in the reader's zone", step: zones },
  { name: "sign-in and a key's lifecycle by keyboard", step: keyboardOnly },
];

browserTest("keys in a browser", async (visit, t) => {
  for (const { name, step, isShownWithout = false } of STEPS) {
    if (IS_WHOLE || !isShownWithout) await t.step(name, () => step(visit));
  }
});
