/**
 * A key made in a real browser works at the edge, and what is clicked there holds
 * for the next request. Run by `browser_key_test.ts` in a process of its own.
 */
import assert from "node:assert/strict";
import { chromium, type Page } from "playwright-core";
import { storeKey } from "../../services/key-admin/browser/site_fixture.ts";
import {
  CHROMIUM_ARGS,
  findChromium,
} from "../../services/key-admin/browser/chromium_fixture.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { waitFor } from "../support/wait_for.ts";

/** What a refusal of the model server becomes at both edges. */
const FAILED = [400, 400];

/** Status of a chat request with this key, at every edge in turn. */
async function statuses(
  { state }: Cluster,
  key: string,
  content = "ping",
): Promise<number[]> {
  const all: number[] = [];
  for (const url of state.edge_urls) {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "neutral-3.7-plus",
        messages: [{ role: "user", content }],
        max_tokens: 3,
      }),
    });
    const text = await response.text();
    if (response.status === 200) {
      assert.notEqual(JSON.parse(text).choices[0].message.content, "");
    }
    all.push(response.status);
  }
  return all;
}

async function signUp(page: Page, { state }: Cluster): Promise<void> {
  await page.goto(state.setup_url ?? assert.fail("no set-up link"));
  await page.getByLabel("E-mail").fill("ada@example.org");
  await page.getByLabel("Password").fill("correct horse battery staple");
  await page.getByRole("button", { name: "Create account" }).click();
  await page.waitForURL("**/keys");
}

/** Clicks through what asks before something is done. */
async function confirm(page: Page, button: string): Promise<void> {
  await page.getByRole("dialog").getByRole("button", { name: button }).click();
}

const open = (page: Page, link: string): Promise<void> =>
  page.getByRole("link", { name: link, exact: true }).first().click();

/** Sets what the key may do, from its page. */
async function allowChat(page: Page, isAllowed: boolean): Promise<void> {
  await open(page, "Edit");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Description").fill("Renamed in the browser");
  await dialog.getByLabel("Chat", { exact: true }).setChecked(isAllowed);
  await confirm(page, "Save changes");
  await page.getByText("Your changes are saved").waitFor();
}

/** A key in use is deleted by typing the end of its value, a disabled one by a tick. */
async function deleteKey(
  page: Page,
  consoleUrl: string,
  value: string,
  isDisabled = false,
): Promise<void> {
  const tail = value.slice(-4);
  await page.goto(`${consoleUrl}/keys`);
  await page.getByRole("row").filter({ hasText: tail })
    .getByRole("link").click();
  await open(page, "Delete");
  if (isDisabled) await page.getByLabel("I understand").check();
  else await page.getByLabel("Type the last four characters").fill(tail);
  await confirm(page, "Delete key");
  await page.getByText("The key is deleted").waitFor();
}

Deno.test("the life of a key from the browser to the edges", async () => {
  const executablePath = findChromium() ?? assert.fail("no Chromium");
  await using cluster = await startCluster({ edges: 2 });
  const browser = await chromium.launch({
    executablePath,
    args: CHROMIUM_ARGS,
  });
  const edges = (key: string) => statuses(cluster, key);
  try {
    const page = await browser.newPage();
    await signUp(page, cluster);
    await open(page, "Create key");
    await page.getByLabel("Description").fill("From the browser");
    await confirm(page, "Create key");
    const key = await storeKey(page);
    assert.deepEqual(await edges(key), [200, 200]);

    await open(page, "From the browser");
    await allowChat(page, false);
    assert.deepEqual(await edges(key), [403, 403]);
    await allowChat(page, true);
    assert.deepEqual(await edges(key), [200, 200]);

    await open(page, "Disable");
    await confirm(page, "Disable key");
    await page.getByText("The key is disabled").waitFor();
    assert.deepEqual(await edges(key), [403, 403]);
    await page.getByRole("button", { name: "Enable" }).click();
    await page.getByText("The key is enabled").waitFor();
    assert.deepEqual(await edges(key), [200, 200]);

    await open(page, "Rotate");
    await page.getByLabel("in 1 hour").check();
    await confirm(page, "Make the new key");
    const next = await storeKey(page);
    assert.deepEqual(await edges(next), [200, 200]);
    assert.deepEqual(await edges(key), [200, 200], "in its last hour");

    const failed = "[simulator: error 400]";
    assert.deepEqual(await statuses(cluster, key, failed), FAILED);
    // At two edges each: five rounds that were answered, one that failed.
    await usageShows(page, cluster, { Requests: "12", Errors: "2" });

    const { console_url } = cluster.state;
    await deleteKey(page, console_url, key);
    assert.deepEqual(await edges(key), [401, 401]);
    assert.deepEqual(await edges(next), [200, 200]);
    await page.getByRole("button", { name: "Disable Renamed" }).first().click();
    await confirm(page, "Disable key");
    await page.getByText("The key is disabled").waitFor();
    assert.deepEqual(await edges(next), [403, 403]);
    await deleteKey(page, console_url, next, true);
    assert.deepEqual(await edges(next), [401, 401]);
  } finally {
    await browser.close();
  }
});

/** Waits until the usage page counts what was done. */
async function usageShows(
  page: Page,
  { state }: Cluster,
  tiles: Record<string, string>,
): Promise<void> {
  await waitFor(async () => {
    await page.goto(`${state.console_url}/usage`);
    const shown = await page.locator(".tile").allTextContents();
    return Object.entries(tiles).every(([name, value]) =>
      shown.includes(name + value)
    );
  }, { what: "the requests to be counted", timeoutMs: 10_000 });
}
