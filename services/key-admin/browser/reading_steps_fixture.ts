import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import {
  browserTest,
  makeKey,
  markUsed,
  signedIn,
  storeKey,
  useKey,
  type Visit,
} from "./site_fixture.ts";

/** What pages tell, to eyes and to keyboards. Run by `reading_long_test.ts`. */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

async function emptyState(visit: Visit): Promise<void> {
  const { page, context } = await signedIn(visit, "new@example.org");
  await page.getByRole("heading", { name: "Create your first key" }).waitFor();
  const { apiUrl } = visit.site.deps;
  const curl = await page.locator("#curl").textContent() ?? "";
  assert.ok(curl.startsWith(`curl ${apiUrl}/chat/completions `), curl);
  assert.match(curl, /"Authorization: Bearer \$API_KEY"/);
  await page.goto("/usage");
  await page.getByText("No requests in the last 24 hours").waitFor();
  assert.equal(await page.locator("#curl").textContent(), curl);
  await page.goto("/keys");
  await page.getByRole("link", { name: "Create key" }).click();
  await page.getByLabel("Description").fill("The first");
  await page.getByRole("dialog").getByRole("button", { name: "Create key" })
    .click();
  await storeKey(page);
  await page.getByRole("link", { name: "The first" }).waitFor();
  await context.close();
}

/**
 * The same key, seen from two sides of the date line, and by somebody whose language
 * the pages do not speak: half a page in German would be no help to him.
 */
async function zones(visit: Visit): Promise<void> {
  const endMs = Date.UTC(2099, 0, 31, 23, 59, 59);
  const cases = [
    ["Asia/Tokyo", "en-US", "Feb 1, 2099", "en-US", "GMT+9"],
    ["America/Los_Angeles", "en-US", "Jan 31, 2099", "en-US", "P"],
    ["Europe/Berlin", "de-DE", "1 Feb 2099", "en-GB", "CE"],
  ] as const;
  for (const [timezoneId, locale, ends, shownIn, zone] of cases) {
    const { page, context, ownerId } = await signedIn(
      visit,
      `${timezoneId.toLowerCase().replace("/", "-")}@example.org`,
      { timezoneId, locale },
    );
    const key = await makeKey(visit.site, ownerId, { expiresAtMs: endMs });
    await page.goto(`/keys/${key.id}`);
    await page.getByText(ends).waitFor();
    const inZone = new Intl.DateTimeFormat(shownIn, {
      ...{ year: "numeric", month: "short", day: "numeric" },
      ...{ hour: "numeric", minute: "2-digit", timeZoneName: "short" },
      timeZone: timezoneId,
    });
    assert.ok(inZone.format(endMs).includes(zone));
    for (const place of [page.locator(".facts"), page.locator(".audit")]) {
      const time = place.locator("time[data-as=minute]").first();
      const ms = Date.parse(await time.getAttribute("datetime") ?? "");
      assert.ok(Math.abs(ms - key.createdAtMs) < 1_000, "when it was made");
      assert.equal(await time.textContent(), inZone.format(ms));
    }
    await markUsed(visit.site, { ownerId, keyId: key.id }, Date.now() - DAY_MS);
    await page.reload();
    await page.locator(".facts").getByText("yesterday").waitFor();
    await context.close();
  }
}

/** The four tiles of a usage view. */
async function tiles(page: Page): Promise<Record<string, string>> {
  const all: Record<string, string> = {};
  for (const tile of await page.locator(".tiles > div").all()) {
    const name = await tile.locator("dt").textContent() ?? "";
    const value = tile.locator("dd span");
    all[name] = await value.getAttribute("title") ??
      await value.textContent() ?? "";
  }
  return all;
}

/** Sums of the columns of the table behind the charts. */
async function tableSums(page: Page): Promise<number[]> {
  await page.getByText("Show as a table").click();
  const sums: number[] = [];
  for (const row of await page.locator("details tbody tr").all()) {
    const cells = await row.locator("td").allTextContents();
    cells.forEach((cell, at) => {
      sums[at] = (sums[at] ?? 0) + Number(cell.replaceAll(",", ""));
    });
  }
  return sums;
}

async function usage(visit: Visit): Promise<void> {
  // Half past: no hour ends while its numbers are compared.
  const { clock, deps } = visit.site;
  clock.nowMs += HOUR_MS / 2 - deps.now() % HOUR_MS;
  const { page, context, ownerId } = await signedIn(visit, "use@example.org");
  const keys = [
    await makeKey(visit.site, ownerId, { description: "Busy" }),
    await makeKey(visit.site, ownerId, { description: "Busy long ago" }),
  ];
  const nowMs = deps.now();
  const uses = [
    [0, 1_234, 56, 1_234_567, 654_321],
    [20 * HOUR_MS, 100, 4, 1_000, 2_000],
    [12 * DAY_MS, 5_000, 40, 70_000, 80_000],
    [40 * DAY_MS, 9_000, 90, 90_000, 90_000],
  ] as const;
  for (
    const [at, [agoMs, requests, errors, promptTokens, completionTokens]]
      of uses
        .entries()
  ) {
    const keyId = keys[at < 2 ? 0 : 1]?.id ?? "";
    const counts = { requests, errors, promptTokens, completionTokens };
    const atMs = nowMs - agoMs;
    await useKey(visit.site, { ownerId, keyId }, { atMs, ...counts });
  }

  await page.goto("/usage");
  assert.deepEqual(await tiles(page), {
    "Requests": "1,334",
    "Errors": "60",
    "Input tokens": "1,235,567",
    "Output tokens": "656,321",
  });
  assert.equal(await page.locator(".tiles dd").nth(2).textContent(), "1.2M");
  assert.deepEqual(await tableSums(page), [1_334, 60, 1_235_567, 656_321]);
  const chart = page.getByRole("img", { name: /^Requests/ });
  assert.equal(await chart.locator("title").count(), 24);
  assert.equal(await chart.locator("rect.ok").count(), 2);
  assert.equal(await chart.locator("rect.error").count(), 2);
  assert.match(
    await chart.locator("title").last().textContent() ?? "",
    /: Successful 1,178, Errors 56$/,
  );

  await page.getByRole("link", { name: "Last 30 days" }).click();
  await page.waitForURL("**/usage?range=30d");
  assert.deepEqual(await tiles(page), {
    "Requests": "6,334",
    "Errors": "100",
    "Input tokens": "1,305,567",
    "Output tokens": "736,321",
  });
  assert.deepEqual(await tableSums(page), [6_334, 100, 1_305_567, 736_321]);
  assert.equal(await chart.locator("title").count(), 30);

  // A key's own page counts that key only.
  await page.goto(`/keys/${keys[1]?.id}?range=30d`);
  assert.equal((await tiles(page))["Requests"], "5,000");
  await page.goto(`/keys/${keys[1]?.id}`);
  assert.equal((await tiles(page))["Requests"], "0");
  await page.goto("/keys");
  const row = page.getByRole("row", { name: "Busy sk-" });
  await row.getByRole("cell", { name: /^1,[23]34$/ }).waitFor();
  await context.close();
}

const TABS_MAX = 40;

/** Goes on with the Tab key until what has the focus is called so. */
async function tabTo(page: Page, name: RegExp): Promise<void> {
  const seen: string[] = [];
  for (let n = 0; n < TABS_MAX; n++) {
    await page.keyboard.press("Tab");
    const focused = await nameOfFocus(page);
    if (name.test(focused)) return;
    seen.push(focused);
  }
  assert.fail(`Tab does not reach ${name}: ${seen.join(" | ")}`);
}

/** What a screen reader calls the element that has the focus, nearly. */
async function nameOfFocus(page: Page): Promise<string> {
  return String(
    await page.evaluate(
      `(({ ariaLabel, labels, textContent, tagName }) =>
        ariaLabel ?? labels?.[0]?.textContent ?? (tagName === "BODY" ? "" : textContent)
      )(document.activeElement).trim()`,
    ),
  );
}

/** Created, stored and disabled without a mouse. Dialogs take the focus, keep it and give it back. */
async function keyboardOnly(visit: Visit): Promise<void> {
  const { page, context } = await signedIn(visit, "keyboard@example.org");
  const dialog = page.getByRole("dialog");
  await page.keyboard.press("Tab");
  assert.equal(await nameOfFocus(page), "Skip to the content");
  await page.keyboard.press("Enter");
  await tabTo(page, /^Create key$/);
  await page.keyboard.press("Enter");
  await dialog.waitFor();
  assert.equal(await nameOfFocus(page), "Description");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await nameOfFocus(page), "Create key");

  await page.keyboard.press("Enter");
  await dialog.waitFor();
  await page.keyboard.type("By keyboard");
  for (let n = 0; n < TABS_MAX; n++) {
    await page.keyboard.press("Tab");
    // The browser's own bar may come in between; the page behind may not.
    const isInside = await page.evaluate(
      "document.activeElement === document.body || " +
        "document.querySelector('dialog').contains(document.activeElement)",
    );
    assert.ok(isInside, await nameOfFocus(page));
  }
  await tabTo(page, /^Create key$/);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Store your key now" }).waitFor();
  await tabTo(page, /^I have stored it$/);
  await page.keyboard.press("Space");
  await tabTo(page, /^Done$/);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "API keys" }).waitFor();

  await tabTo(page, /^Disable By keyboard$/);
  await page.keyboard.press("Space");
  await dialog.waitFor();
  assert.ok(
    await page.evaluate(
      "document.querySelector('dialog').contains(document.activeElement)",
    ),
  );
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await nameOfFocus(page), "Disable By keyboard");
  await page.keyboard.press("Enter");
  await dialog.waitFor();
  await tabTo(page, /^Disable key$/);
  await page.keyboard.press("Enter");
  await page.getByText("The key is disabled").waitFor();

  await page.getByRole("button", { name: "Enable" }).press("Enter");
  await page.getByText("The key is enabled").waitFor();
  await tabTo(page, /^Rotate$/);
  await page.keyboard.press("Enter");
  await dialog.waitFor();
  assert.equal(await nameOfFocus(page), "in 24 hours", "not: at once");
  await context.close();
}

browserTest("reading in a browser", async (visit, t) => {
  const steps: [name: string, step: (visit: Visit) => Promise<void>][] = [
    ["an empty console says what to do", emptyState],
    ["times are in the reader's zone", zones],
    ["usage of a day and of a month", usage],
    ["a key's life with the keyboard only", keyboardOnly],
  ];
  for (const [name, step] of steps) await t.step(name, () => step(visit));
});
