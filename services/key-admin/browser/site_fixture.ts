/**
 * The console as a server, and a browser that uses it. The steps files that import
 * this run in their own process, see `inBrowser()`.
 */
import assert from "node:assert/strict";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import { serve } from "@gateway/shared/process/lifecycle/serve";
import { findChromium } from "./chromium_fixture.ts";
import { catalogOfIds, MEDIA_MODELS } from "../catalog_fixture.ts";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { PASSWORD } from "../forms_fixture.ts";

/** The list of models scrolls, and their names have all lengths. */
const MODELS = [
  "neutral-3.7-plus",
  "small-1",
  "large-1",
  "llama3.2:70b",
  "mistral-large",
  "qwen/qwen3-235b-a22b-instruct",
  "deepseek-v3",
  "gemma-3-27b-it",
  "phi-4",
  "command-r-plus",
  "granite-4",
  "kimi-k2",
  "olmo-3-32b",
  ...MEDIA_MODELS,
];

/** Puts a console on a real socket. Its origin is its public URL. */
function serveConsole(site: TestConsole): AsyncDisposable {
  const server = serve({
    hostname: "127.0.0.1",
    port: 0,
    handler: async (request, { remoteAddr: { hostname } }) =>
      await site.app.fetch(request, { remoteIp: hostname }),
    onError: () => new Response(null, { status: 500 }),
  });
  site.deps.publicUrl = new URL(`http://127.0.0.1:${server.port}`);
  return {
    [Symbol.asyncDispose]: () => server.stop({ graceMs: 1_000, abortMs: 100 }),
  };
}

/** A browser at a console. */
export interface Visit {
  site: TestConsole;
  browser: Browser;
  /** Errors of scripts and violations of the content security policy. */
  faults: string[];
}

/**
 * Chromium opens no window, sends no requests to its vendor, and starts no process for
 * what these tests do not use: together a sixth of its work.
 */
const CHROMIUM_ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-extensions",
  "--disable-component-extensions-with-background-pages",
  "--disable-features=Translate,OptimizationHints,MediaRouter",
  "--process-per-site",
  "--renderer-process-limit=1",
];

let launched: Promise<Browser> | undefined;
Deno.test.afterAll(async () => await (await launched)?.close());

/** Nothing is known of what this model costs, in a console with prices. */
const UNPRICED_MODEL = "qwen/qwen3-235b-a22b-instruct";

/** Registers a test with its own console. Fails when a page reported an error. */
export function browserTest(
  name: string,
  steps: (visit: Visit, t: Deno.TestContext) => Promise<void>,
  { hasPrices = false }: {
    /** Whether all models but one have prices. */
    hasPrices?: boolean;
  } = {},
): void {
  const catalog = catalogOfIds(
    MODELS,
    (id) => hasPrices && id !== UNPRICED_MODEL,
  );
  Deno.test({
    name,
    // The driver keeps pipes and timers until its process ends.
    sanitizeOps: false,
    sanitizeResources: false,
    fn: async (t) => {
      await using site = await startConsole({ catalog });
      await using _server = serveConsole(site);
      const faults: string[] = [];
      const executablePath = findChromium() ?? assert.fail("no Chromium");
      launched ??= chromium.launch({ executablePath, args: CHROMIUM_ARGS });
      await steps({ site, browser: await launched, faults }, t);
      assert.deepEqual(faults, []);
    },
  });
}

/** The options of a window that may copy and paste. */
export const CLIPBOARD = { permissions: ["clipboard-read", "clipboard-write"] };

/** How long a busy machine may need for a page. */
const PATIENT_MS = 60_000;

/** A window of the browser. */
export interface Window {
  context: BrowserContext;
  page: Page;
}

/** A new window, signed out. */
export async function openWindow(
  { browser, faults, site }: Visit,
  options: BrowserContextOptions = {},
): Promise<Window> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 844 },
    baseURL: site.deps.publicUrl.origin,
    ...options,
  });
  context.setDefaultTimeout(PATIENT_MS);
  context.on("weberror", (error) => faults.push(String(error.error())));
  context.on("console", (message) => {
    // The browser reports the 4xx of refusals as an error.
    const isStatus = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !isStatus) faults.push(message.text());
  });
  return { context, page: await context.newPage() };
}

/** A window of a signed-in owner, created if need be, at the list of keys. */
export async function signedIn(
  visit: Visit,
  email: string,
  options: BrowserContextOptions = {},
): Promise<Window & { ownerId: string }> {
  const { owners, sessions, hasher } = visit.site.deps;
  const ownerId = await owners.ensure(email);
  await owners.setPassword(ownerId, await hasher.hash(PASSWORD));
  const window = await openWindow(visit, options);
  const userAgent = String(await window.page.evaluate("navigator.userAgent"));
  const value = await sessions.start(ownerId, { ip: "127.0.0.1", userAgent });
  const cookie = { name: "sid", value, url: visit.site.deps.publicUrl.origin };
  await window.context.addCookies([cookie]);
  await window.page.goto("/keys");
  return { ...window, ownerId };
}

/** Presses the button with this text. */
export const press = (page: Page, button: string): Promise<void> =>
  page.getByRole("button", { name: button, exact: true }).click();

/** Follows the first link with this text. */
export const follow = (page: Page, link: string): Promise<void> =>
  page.getByRole("link", { name: link, exact: true }).first().click();

/** Waits for a text. */
export const says = (page: Page, text: string): Promise<void> =>
  page.getByText(text).first().waitFor();

/** Waits for a heading. */
export const title = (page: Page, name: string): Promise<void> =>
  page.getByRole("heading", { name }).waitFor();

/** Reads the value from the page that shows it once, and leaves the page. */
export async function storeKey(page: Page): Promise<string> {
  const value = await page.locator("#value").innerText();
  assert.ok(isWellFormedKey(value), "the value is shown once");
  assert.ok(!page.url().includes("sk-"), "and is in no address");
  await page.getByLabel("I have stored it").check();
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("heading", { name: "API keys" }).waitFor();
  return value;
}
