import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import {
  browserTest,
  makeKey,
  openWindow,
  signedIn,
  storeKey,
  useKey,
  type Visit,
} from "./site_fixture.ts";
import { PASSWORD } from "../console_fixture.ts";
import { totpCode } from "../domain/sign_in/totp.ts";

/** Everything without JavaScript: dialogs are pages, times are UTC. Run by `plain_long_test.ts`. */

const EMAIL = "plain@example.org";
const NEW_PASSWORD = "another horse battery staple";
const TOTP_STEP_MS = 30_000;
/** More than a page of the list, and of the log. */
const KEYS = 120;
const FINDABLE = "Seventyseven";

const press = (page: Page, name: string): Promise<void> =>
  page.getByRole("button", { name, exact: true }).click();
const follow = (page: Page, name: string): Promise<void> =>
  page.getByRole("link", { name, exact: true }).first().click();
const says = (page: Page, text: string): Promise<void> =>
  page.getByText(text).first().waitFor();

async function keys(page: Page): Promise<void> {
  await page.goto("/keys");
  await follow(page, "Create key");
  await page.getByLabel("Description").fill("Plain");
  await page.getByLabel("Expires").selectOption("date");
  await page.getByLabel("Day", { exact: true }).fill("2099-01-31");
  await press(page, "Create key");
  const value = await storeKey(page);
  await follow(page, "Plain");
  await says(page, "2099-01-31");

  await follow(page, "Edit");
  await page.getByLabel("Description").fill("Plainer");
  await page.getByLabel("Tokens per day").fill("10,000");
  await press(page, "Save changes");
  await says(page, "Your changes are saved");
  await page.getByRole("heading", { name: "Plainer" }).waitFor();

  await follow(page, "Disable");
  await press(page, "Disable key");
  await says(page, "The key is disabled");
  await press(page, "Enable");
  await says(page, "The key is enabled");

  await follow(page, "Rotate");
  await page.getByLabel("in 7 days").check();
  await press(page, "Create the new key");
  await says(page, "still works for 7 days");
  assert.notEqual(await storeKey(page), value);

  // From the list, whose switches are a link and a form.
  const row = page.getByRole("row").filter({ hasText: value.slice(-4) });
  await row.getByRole("button", { name: "Disable Plainer" }).click();
  await press(page, "Disable key");
  await follow(page, "API keys");
  await row.getByRole("button", { name: "Enable Plainer" }).click();
  await says(page, "The key is enabled");
  await row.getByRole("link", { name: "Plainer" }).click();

  await follow(page, "Delete");
  await page.getByLabel("I understand").check();
  await press(page, "Delete key");
  await says(page, "The key is deleted");
  assert.equal(await row.count(), 0);
}

async function listAndLog(page: Page, visit: Visit): Promise<void> {
  const ownerId = await visit.site.deps.owners.find(EMAIL) ?? "";
  for (let n = 0; n < KEYS; n++) {
    await makeKey(visit.site, ownerId, { description: `Number ${n}` });
  }
  // Longer than the last characters of a key, by which keys are found too.
  await makeKey(visit.site, ownerId, { description: FINDABLE });
  await page.goto("/keys");
  await says(page, `1–50 of ${KEYS + 2}`);
  await follow(page, "Next");
  await says(page, `51–100 of ${KEYS + 2}`);
  await follow(page, "Last");
  await page.getByRole("link", { name: "Plainer" }).waitFor();
  await follow(page, "Previous");
  await follow(page, "First");
  await page.getByRole("link", { name: FINDABLE }).waitFor();

  await page.getByLabel("Find keys").fill(FINDABLE);
  await press(page, "Find");
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.getByRole("link", { name: FINDABLE }).waitFor();
  await page.goto("/keys");
  await follow(page, "With expiry");
  assert.equal(await page.locator("tbody tr").count(), 1);

  await follow(page, "Audit log");
  await page.getByRole("rowheader", { name: "Created key" }).first().waitFor();
  await follow(page, "Older");
  assert.equal(await page.locator("tbody tr").count(), 50);
  await follow(page, "Newest");
  await follow(page, "Account");
  await follow(page, "Audit log");
  await page.getByRole("navigation", { name: "Filter" })
    .getByRole("link", { name: "Account" }).click();
  await page.getByRole("rowheader", { name: "Created account" }).waitFor();
  assert.equal(await page.getByText("Created key").count(), 0);

  await follow(page, "Usage");
  await follow(page, "Last 30 days");
  await says(page, "No requests in the last 30 days");
  assert.equal(await page.getByText("Show as a table").count(), 0);
  const { id: keyId } = await makeKey(visit.site, ownerId);
  await useKey(visit.site, { ownerId, keyId }, {
    ...{ atMs: visit.site.deps.now(), requests: 1, errors: 0 },
    ...{ promptTokens: 2, completionTokens: 3 },
  });
  await page.reload();
  await page.getByText("Show as a table").click();
  assert.equal(await page.locator("tbody tr").count(), 30);
}

/** The code of now. Each works once, so the next one is of the step after. */
const codeOf = ({ site }: Visit, secret: string, later = 0): string =>
  totpCode(secret, Math.floor(site.deps.now() / TOTP_STEP_MS) + later);

async function account(page: Page, visit: Visit): Promise<void> {
  const other = await openWindow(visit, { javaScriptEnabled: false });
  await signIn(other.page, PASSWORD, "");
  await says(other.page, "API keys");

  await page.goto("/account");
  await page.getByRole("listitem").filter({ hasNotText: "This device" })
    .getByRole("button", { name: "Sign out" }).last().click();
  await says(page, "The session is ended");
  await other.page.goto("/keys");
  await other.page.waitForURL("**/sign-in?next=%2Fkeys");

  await page.getByLabel("Current password").fill(PASSWORD);
  await page.getByLabel("New password").fill(NEW_PASSWORD);
  await press(page, "Change password");
  await says(page, "Your password is changed");

  await follow(page, "Set up");
  const shown = await page.locator("code.wrap").textContent() ?? "";
  const secret = shown.replaceAll(" ", "");
  await page.getByLabel("Type the code").fill(codeOf(visit, secret));
  await page.getByLabel("Your password").fill(NEW_PASSWORD);
  await press(page, "Turn on");
  const codes = (await page.locator("#codes").textContent() ?? "").split("\n");
  await page.getByLabel("I have stored them").check();
  await press(page, "Done");
  await says(page, `Recovery codes left: ${codes.length}`);

  await press(page, "Sign out everywhere");
  await page.waitForURL("**/sign-in");
  await signIn(page, NEW_PASSWORD, "");
  await says(page, "is not right");
  await signIn(page, NEW_PASSWORD, codeOf(visit, secret, 1));
  await page.getByRole("heading", { name: "API keys" }).waitFor();
  await press(page, "Sign out");
  await signIn(page, NEW_PASSWORD, codes[0] ?? "");
  await page.getByRole("heading", { name: "API keys" }).waitFor();

  await follow(page, "Account");
  await says(page, `Recovery codes left: ${codes.length - 1}`);
  await page.locator("#off_password").fill(NEW_PASSWORD);
  await press(page, "Turn off");
  await says(page, "Two-step sign-in is off");
  await other.context.close();
}

async function signIn(
  page: Page,
  password: string,
  code: string,
): Promise<void> {
  await page.goto("/sign-in");
  await page.getByLabel("E-mail").fill(EMAIL);
  await page.getByLabel("Password").fill(password);
  await page.getByLabel("Code").fill(code);
  await press(page, "Sign in");
}

browserTest("without JavaScript", async (visit, t) => {
  const { page } = await signedIn(visit, EMAIL, { javaScriptEnabled: false });
  await t.step("keys: from create to delete", () => keys(page));
  await t.step(
    "paging, search, filters, usage",
    () => listAndLog(page, visit),
  );
  await t.step(
    "account: password, two steps, sessions",
    () => account(page, visit),
  );
});
