import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { codeOf, PASSWORD, storedKey, useKey } from "../console_fixture.ts";
import {
  browserTest,
  follow,
  openWindow,
  press,
  says,
  signedIn,
  title,
  type Visit,
} from "./site_fixture.ts";

/** Pages as seen, used by keyboard, and without JavaScript. Run by `pages_long_test.ts`. */

const EMAIL = "plain@example.org";
const NEW_PASSWORD = "another horse battery staple";
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** More than a page of the list, and of the log. */
const KEYS = 60;
const FINDABLE = "Seventyseven";

async function listAndLog(page: Page, visit: Visit): Promise<void> {
  const ownerId = await visit.site.deps.owners.find(EMAIL) ?? "";
  for (let n = 0; n < KEYS; n++) {
    await storedKey(visit.site, ownerId, { description: `Number ${n}` });
  }
  // Longer than the last characters of a key, which a search also matches.
  await storedKey(visit.site, ownerId, {
    ...{ description: FINDABLE, expiresAtMs: Date.now() + DAY_MS },
  });
  const rows = page.locator("tbody tr");
  await page.goto("/keys");
  await page.getByRole("link", { name: FINDABLE, exact: true }).waitFor();
  await follow(page, "Older");
  await page.getByRole("link", { name: "Number 0", exact: true }).waitFor();
  await follow(page, "Newest");
  await page.getByRole("link", { name: FINDABLE, exact: true }).waitFor();
  await page.getByLabel("Find keys").fill(FINDABLE);
  await press(page, "Find");
  await page.getByRole("link", { name: FINDABLE, exact: true }).waitFor();
  assert.equal(await rows.count(), 1);
  await page.goto("/keys");
  await follow(page, "With expiry");
  await page.getByRole("link", { name: FINDABLE, exact: true }).waitFor();
  assert.equal(await rows.count(), 1);

  await follow(page, "Audit log");
  await follow(page, "Older");
  await follow(page, "Newest");
  await page.getByRole("rowheader", { name: "Key created" }).first().waitFor();
  await page.getByRole("navigation", { name: "Filter" })
    .getByRole("link", { name: "Account" }).click();
  await page.getByRole("rowheader", { name: "Password changed" }).waitFor();
  assert.equal(await page.getByText("Key created").count(), 0);
}

async function account(page: Page, visit: Visit): Promise<void> {
  const other = await openWindow(visit, { javaScriptEnabled: false });
  await signIn(other.page, PASSWORD, "");
  await title(other.page, "Create your first key");

  await page.goto("/account");
  await page.locator(".session").filter({ hasNotText: "This device" })
    .getByRole("button", { name: "Sign out" }).click();
  await says(page, "The session has ended");
  await other.page.goto("/keys");
  await other.page.waitForURL("**/sign-in?next=%2Fkeys");
  await other.context.close();

  await page.getByLabel("Current password").fill(PASSWORD);
  await page.getByLabel("New password").fill(NEW_PASSWORD);
  await press(page, "Change password");
  await says(page, "Your password is changed");

  await follow(page, "Set up");
  const secret = await page.locator("#secret").textContent() ?? "";
  await page.getByLabel("Type the code").fill(codeOf(visit.site, secret));
  await page.getByLabel("Your password").fill(NEW_PASSWORD);
  await press(page, "Turn on");
  const codes = (await page.locator("#value").textContent() ?? "").split("\n");
  await page.getByLabel("I have stored it").check();
  await press(page, "Done");
  await press(page, "Sign out everywhere");
  await page.waitForURL("**/sign-in");
  // Each code works once.
  for (const code of [codeOf(visit.site, secret, 1), codes[0] ?? ""]) {
    await signIn(page, NEW_PASSWORD, "");
    await says(page, "is wrong");
    await signIn(page, NEW_PASSWORD, code);
    await page.waitForURL("**/keys");
    await press(page, "Sign out");
  }
  await signIn(page, NEW_PASSWORD, codes[1] ?? "");
  await follow(page, "Account");
  await says(page, `Recovery codes left: ${codes.length - 2}`);
  await page.locator("#off_password").fill(NEW_PASSWORD);
  await press(page, "Turn off");
  await says(page, "Two-step sign-in is off");
}

async function signIn(page: Page, password: string, code: string) {
  await page.goto("/sign-in");
  await page.getByLabel("E-mail").fill(EMAIL);
  await page.getByLabel("Password").fill(password);
  await page.getByLabel("Code").fill(code);
  await press(page, "Sign in");
}

/** The same key on two sides of the date line, and for a reader whose language is not English. */
async function zones(visit: Visit): Promise<void> {
  const endMs = Date.UTC(2099, 0, 31, 23, 59, 59);
  const cases = [
    ["Asia/Tokyo", "en-US", "Feb 1, 2099", "en-US"],
    ["America/Los_Angeles", "en-US", "Jan 31, 2099", "en-US"],
    ["Europe/Berlin", "de-DE", "1 Feb 2099", "en-GB"],
  ] as const;
  for (const [timezoneId, locale, ends, shownIn] of cases) {
    const { page, context, ownerId } = await signedIn(
      visit,
      "zone@example.org",
      { timezoneId, locale },
    );
    const key = await storedKey(visit.site, ownerId, { expiresAtMs: endMs });
    await page.goto(`/keys/${key.id}`);
    await says(page, ends);
    const created = page.locator("time[data-as=minute]").first();
    const inZone = new Intl.DateTimeFormat(shownIn, {
      ...{ year: "numeric", month: "short", day: "numeric" },
      ...{ hour: "numeric", minute: "2-digit", timeZoneName: "short" },
      timeZone: timezoneId,
    });
    assert.equal(await created.textContent(), inZone.format(key.createdAtMs));
    const used = {
      requests: 1,
      errors: 0,
      promptTokens: 1,
      completionTokens: 1,
    };
    const nowMs = visit.site.deps.now();
    await useKey(visit.site, { ownerId, keyId: key.id }, nowMs, used);
    await page.reload();
    const firstMs = nowMs - nowMs % HOUR_MS - 23 * HOUR_MS;
    const first = page.locator(".chart time").first();
    assert.equal(await first.textContent(), inZone.format(firstMs));
    await context.close();
  }
}

/** The numbers of a usage view: its tiles, and the sums of its table. */
async function counted(page: Page, path: string): Promise<string[]> {
  await page.goto(path);
  const tiles = await page.locator(".totals dd").allTextContents();
  const cells = await page.locator("details td").allTextContents();
  const sums = tiles.map((_, column) =>
    cells.filter((_, at) => at % tiles.length === column)
      .reduce((sum, cell) => sum + Number(cell.replaceAll(",", "")), 0)
  );
  assert.deepEqual(tiles, sums.map((sum) => sum.toLocaleString("en-US")));
  return tiles;
}

async function usage(visit: Visit): Promise<void> {
  // Half past the hour: no hour ends while its numbers are compared.
  const { clock, deps } = visit.site;
  clock.nowMs += HOUR_MS / 2 - deps.now() % HOUR_MS;
  const { page, context, ownerId } = await signedIn(visit, "use@example.org");
  const busy = await storedKey(visit.site, ownerId, { description: "Busy" });
  const old = await storedKey(visit.site, ownerId, { description: "Old" });
  const uses = [
    [busy.id, 0, 1_234, 56, 1_234_567, 654_321],
    [busy.id, 20 * HOUR_MS, 100, 4, 1_000, 2_000],
    [old.id, 12 * DAY_MS, 5_000, 40, 70_000, 80_000],
    [old.id, 40 * DAY_MS, 9_000, 90, 90_000, 90_000],
  ] as const;
  for (const [keyId, agoMs, ...counts] of uses) {
    const [requests, errors, promptTokens, completionTokens] = counts;
    await useKey(visit.site, { ownerId, keyId }, deps.now() - agoMs, {
      ...{ requests, errors, promptTokens, completionTokens },
    });
  }
  const day = ["1,334", "60", "0", "1,235,567", "656,321"];
  assert.deepEqual(await counted(page, "/usage"), day);
  const chart = page.getByRole("img", { name: /^Requests/ });
  const titles = await chart.locator("title").allTextContents();
  assert.equal(titles.length, 24);
  assert.match(
    titles.at(-1) ?? "",
    /: Successful 1,178, Failed 56, Refused 0$/,
  );
  assert.equal(await chart.locator('rect:not([height="0"])').count(), 4);
  const month = ["6,334", "100", "0", "1,305,567", "736,321"];
  assert.deepEqual(await counted(page, "/usage?range=30d"), month);
  assert.equal(await chart.locator("title").count(), 30);
  // A key's own page counts that key only.
  const [requests] = await counted(page, `/keys/${old.id}?range=30d`);
  assert.equal(requests, "5,000");
  await page.goto(`/keys/${old.id}`);
  await says(page, "No requests in the last 24 hours");
  await context.close();
}

const TABS_MAX = 40;

/** Presses Tab until the element with this name has the focus. */
async function tabTo(page: Page, name: string): Promise<void> {
  const seen: string[] = [];
  for (let n = 0; n < TABS_MAX; n++) {
    await page.keyboard.press("Tab");
    const focused = String(
      await page.evaluate(
        `(({ labels, textContent, tagName }) =>
          labels?.[0]?.textContent ?? (tagName === "BODY" ? "" : textContent)
        )(document.activeElement).trim()`,
      ),
    );
    if (focused === name) return;
    seen.push(focused);
  }
  assert.fail(`Tab does not reach ${name}: ${seen.join(" | ")}`);
}

/** Created, stored and disabled without a mouse. */
async function keyboardOnly(visit: Visit): Promise<void> {
  const { page, context } = await signedIn(visit, "keyboard@example.org");
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
  await reach("Disable");
  await title(page, "Disable this key?");
  await reach("Disable key");
  await says(page, "The key is disabled");
  await context.close();
}

browserTest("pages in a browser", async (visit, t) => {
  const { page } = await signedIn(visit, EMAIL, { javaScriptEnabled: false });
  await t.step("the account, without JavaScript", () => account(page, visit));
  await t.step("lists, without JavaScript", () => listAndLog(page, visit));
  await t.step("times are in the reader's zone", () => zones(visit));
  await t.step("usage of a day and of a month", () => usage(visit));
  await t.step("a key's lifecycle by keyboard", () => keyboardOnly(visit));
});
