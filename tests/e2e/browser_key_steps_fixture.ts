/**
 * A key made in a real browser works at the edge, and what is clicked there holds
 * for the next request. Run by `browser_key_test.ts` in a process of its own.
 */
import assert from "node:assert/strict";
import { chromium, type Page } from "playwright-core";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import {
  CHROMIUM_ARGS,
  findChromium,
} from "../../services/key-admin/chromium_fixture.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";

/** Status of a chat request with this key, at every edge in turn. */
async function statuses(cluster: Cluster, key: string): Promise<number[]> {
  const all: number[] = [];
  for (const url of cluster.state.edge_urls) {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "neutral-3.7-plus",
        messages: [{ role: "user", content: "ping" }],
        max_tokens: 3,
      }),
    });
    await response.body?.cancel();
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

async function createKey(page: Page, description: string): Promise<string> {
  await page.getByRole("link", { name: "Create key" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Description").fill(description);
  await dialog.getByRole("button", { name: "Create key" }).click();
  const value = await page.getByLabel("API key").inputValue();
  assert.ok(isWellFormedKey(value));
  await page.getByLabel("I have stored it").check();
  await page.getByRole("button", { name: "Done" }).click();
  await page.waitForURL(/\/keys\??$/);
  return value;
}

Deno.test("the life of a key from the browser to the edges", async () => {
  const executablePath = findChromium() ?? assert.fail("no Chromium");
  await using cluster = await startCluster({ edges: 2 });
  const browser = await chromium.launch({
    executablePath,
    args: CHROMIUM_ARGS,
  });
  try {
    const page = await browser.newPage();
    await signUp(page, cluster);
    const key = await createKey(page, "From the browser");
    assert.deepEqual(await statuses(cluster, key), [200, 200]);

    await page.getByRole("button", { name: "Disable From the browser" })
      .click();
    await page.getByRole("button", { name: "Disable key" }).click();
    await page.getByText("The key is disabled").waitFor();
    assert.deepEqual(await statuses(cluster, key), [403, 403]);

    await page.getByRole("button", { name: "Enable" }).click();
    await page.getByText("The key is enabled").waitFor();
    assert.deepEqual(await statuses(cluster, key), [200, 200]);

    await page.getByRole("link", { name: "Rotate" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("at once").check();
    await dialog.getByRole("button", { name: "Make the new key" }).click();
    const next = await page.getByLabel("API key").inputValue();
    assert.deepEqual(await statuses(cluster, next), [200, 200]);
    assert.deepEqual(await statuses(cluster, key), [401, 401]);
    await page.getByLabel("I have stored it").check();
    await page.getByRole("button", { name: "Done" }).click();

    await page.goto(`${cluster.state.console_url}/usage`);
    // Two edges, three rounds: six requests that a backend answered.
    await page.getByText("6", { exact: true }).first().waitFor();
  } finally {
    await browser.close();
  }
});
