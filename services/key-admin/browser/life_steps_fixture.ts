import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { PASSWORD, storedKey } from "../console_fixture.ts";
import { SESSION_LIMITS } from "../domain/sign_in/sessions.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { until } from "../redis_fixture.ts";
import {
  browserTest,
  follow,
  openWindow,
  press,
  says,
  signedIn,
  storeKey,
  title,
  type Visit,
} from "./site_fixture.ts";

/** The lifecycle of keys in the browser. Run by `console_test.ts`. */

/** Distance of a click from the corner of a button, in px. */
const INSET = 10;

/** How many keys the owner has. */
async function countKeys({ site }: Visit, ownerId: string) {
  const { rows } = await site.deps.keys.list(ownerId, {
    ...{ filter: "all", search: "", after: "" },
    ...{ rows: 10, day: "20261120" },
  });
  return rows.length;
}

async function firstOwner(visit: Visit): Promise<void> {
  const { owners, links } = visit.site.deps;
  const { page, context } = await openWindow(visit);
  const ownerId = await owners.first();
  await page.goto(linkPath(await links.make({ kind: "set_up", ownerId })));
  await page.getByLabel("E-mail").fill("ada@example.org");
  await page.getByLabel("Password").fill(PASSWORD);
  await press(page, "Create account");
  await page.waitForURL("**/keys");
  await context.close();
}

/** The same pages with and without the script. */
async function wholeLife(visit: Visit, javaScriptEnabled: boolean) {
  const email = `life-${javaScriptEnabled}@example.org`;
  const { page, context, ownerId } = await signedIn(visit, email, {
    javaScriptEnabled,
  });
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

  await follow(page, "Disable");
  await page.getByLabel("Also stop requests").check();
  await press(page, "Disable key");
  await says(page, "running requests are being stopped");
  assert.ok(visit.site.stops.sent.length > 0);
  await press(page, "Enable");
  await says(page, "The key is enabled");

  await follow(page, "Edit");
  await page.getByLabel("Description").fill("Billing, renamed");
  await page.getByLabel("Tokens per day").fill("10000");
  const model = page.getByLabel("mistral-large");
  const other = page.getByLabel("phi-4");
  assert.ok(!await model.isVisible(), "all models, so none to choose");
  await page.getByLabel("Only these models").check();
  await model.check();
  await other.check();
  await press(page, "Save changes");
  await says(page, "Your changes are saved");
  await title(page, "Billing, renamed");
  await says(page, "10,000");
  await says(page, "mistral-large, phi-4");
  assert.match(
    await page.getByLabel("Example request").innerText(),
    /"model": "mistral-large"/,
  );

  await follow(page, "Rotate");
  await page.getByLabel("in 7 days").check();
  await press(page, "Create the new key");
  await says(page, "stops working in 7 days");
  assert.notEqual(await storeKey(page), value);

  const old = page.getByRole("row").filter({ hasText: "Replaced by" });
  await old.getByRole("link", { name: "Billing, renamed" }).first().click();
  await says(page, value.slice(-4));
  await follow(page, "Delete");
  await page.getByLabel("I understand").check();
  await press(page, "Delete key");
  await says(page, "The key is deleted");
  assert.equal(await countKeys(visit, ownerId), 1);
  await context.close();
}

/** A value shown once: a button copies it, leaving the page needs a confirmation, going back does not show it. */
async function shownOnce(visit: Visit): Promise<void> {
  const { page, context } = await signedIn(visit, "once@example.org");
  await context.grantPermissions(["clipboard-read", "clipboard-write"], {
    origin: visit.site.origin,
  });
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
  const asked = page.waitForEvent("dialog");
  const clicked = follow(page, "Usage");
  const question = await asked;
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
  await context.close();
}

/** Delays the responses to forms that create a key. */
async function slowAnswers(page: Page) {
  const answers = { made: 0, release: () => {} };
  const held = new Promise<void>((release) => answers.release = release);
  await page.route(/\/keys$/, async (route) => {
    if (route.request().method() !== "POST") return await route.continue();
    const response = await route.fetch();
    answers.made++;
    await held;
    await route.fulfill({ response })
      .catch(() => {}); // The page no longer waits for the first of two.
  });
  return answers;
}

/** With the script the second click sends nothing; without it, the server counts the form once. */
async function doubleClick(visit: Visit): Promise<void> {
  for (const javaScriptEnabled of [true, false]) {
    const sent = javaScriptEnabled ? 1 : 2;
    const email = `double-${javaScriptEnabled}@example.org`;
    const { page, context, ownerId } = await signedIn(visit, email, {
      javaScriptEnabled,
    });
    await page.goto("/keys/new");
    await page.getByLabel("Description").fill("Clicked twice");
    const answers = await slowAnswers(page);
    const button = page.getByRole("button", { name: "Create key" });
    await button.scrollIntoViewIfNeeded();
    const { x, y } = await button.boundingBox() ?? assert.fail("no button");
    // A raw mouse click: a locator would wait for the effect of the first one.
    await page.mouse.click(x + INSET, y + INSET);
    await until(() => answers.made === 1);
    await page.mouse.click(x + INSET, y + INSET);
    await until(() => answers.made >= sent);
    answers.release();
    await says(
      page,
      javaScriptEnabled ? "Store your key now" : "was already created",
    );
    assert.equal(answers.made, sent);
    assert.equal(await countKeys(visit, ownerId), 1);
    await context.close();
  }
}

/** A form that is sent an hour after it was opened deletes nothing before the password. */
async function passwordAgain(visit: Visit): Promise<void> {
  const { site } = visit;
  const { page, context, ownerId } = await signedIn(visit, "hour@example.org");
  const { id } = await storedKey(site, ownerId, { description: "Old" });
  await page.goto(`/keys/${id}/ask/delete`);
  await page.getByLabel("I understand").check();
  const { idleMs, freshMs } = SESSION_LIMITS;
  const other = await context.newPage();
  for (let pastMs = 0; pastMs <= freshMs; pastMs += idleMs - 1_000) {
    site.clock.nowMs += idleMs - 1_000;
    await other.goto("/keys");
  }
  await press(page, "Delete key");
  for (const password of ["not the password", PASSWORD]) {
    await title(page, "Confirm your password");
    await page.getByLabel("Password").fill(password);
    await press(page, "Continue");
  }
  await title(page, "Delete this key?");
  assert.notEqual(await site.deps.keys.get(ownerId, id), null);
  await page.getByLabel("I understand").check();
  await press(page, "Delete key");
  await says(page, "The key is deleted");
  assert.equal(await site.deps.keys.get(ownerId, id), null);
  await context.close();
}

/** Invited by an operator, the owner signs in elsewhere, loses the second factor, and is told who removed it. */
async function inviteAndHelp(visit: Visit): Promise<void> {
  const { owners } = visit.site.deps;
  const options = { javaScriptEnabled: false };
  const email = "invited@example.org";
  const operator = await signedIn(visit, "op@example.org", options);
  assert.equal(await operator.page.getByText("People").count(), 0);
  await owners.giveRole(operator.ownerId);
  await operator.page.reload();
  await follow(operator.page, "People");
  await operator.page.getByText("Invite somebody").click();
  await operator.page.getByLabel("E-mail").fill(email);
  await press(operator.page, "Create the link");
  const link = await operator.page.locator("#value").innerText();
  await operator.page.getByLabel("I have passed it on").check();
  await press(operator.page, "Done");
  await says(operator.page, "Not signed in yet");

  const { page, context } = await openWindow(visit, options);
  await page.goto(link);
  await page.getByLabel("Password").fill(PASSWORD);
  await press(page, "Create account");
  await title(page, "Create your first key");
  const ownerId = await owners.find(email) ?? assert.fail();
  await owners.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");

  await operator.page.reload();
  await operator.page.getByText("Remove second factor").first().click();
  await press(operator.page, "Remove second factor");
  await says(
    operator.page,
    "The change is in the owner's audit log and in yours",
  );
  await follow(operator.page, "Audit log");
  await says(operator.page, email);

  await page.goto("/usage");
  await says(page, "An operator (op@example.org) removed your second factor");
  await press(page, "Dismiss");
  await title(page, "Account");
  assert.equal(await page.getByText("removed your second factor").count(), 0);
  await follow(page, "Audit log");
  await says(page, "Second factor removed");
  await says(page, "op@example.org");
  await context.close();
  await operator.context.close();
}

browserTest("keys in a browser", async (visit, t) => {
  const steps: [name: string, step: (visit: Visit) => Promise<void>][] = [
    ["the first owner signs up", firstOwner],
    ["the lifecycle of a key", () => wholeLife(visit, true)],
    ["the same without JavaScript", () => wholeLife(visit, false)],
    ["an operator invites and helps, without JavaScript", inviteAndHelp],
    ["a value that is shown once", shownOnce],
    ["a double click on Create creates one key", doubleClick],
    ["after an hour the password is asked for again", passwordAgain],
  ];
  for (const [name, step] of steps) await t.step(name, () => step(visit));
});
