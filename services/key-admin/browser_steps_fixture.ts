import assert from "node:assert/strict";
import axe from "axe-core";
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Page,
} from "playwright-core";
import { randomBytes } from "@gateway/shared/ids";
import { silentLog } from "@gateway/shared/log";
import { usageDay, usageField } from "@gateway/shared/keys/limiter_state";
import {
  limiterKey,
  ownerUsageKey,
  usageKey,
} from "@gateway/shared/keys/record";
import { serve } from "@gateway/shared/serve";
import { CHROMIUM_ARGS, findChromium } from "./chromium_fixture.ts";
import { createConsoleDeps } from "./console_deps.ts";
import { PASSWORD } from "./console_fixture.ts";
import { isWellFormedKey } from "@gateway/shared/keys/key";
import type { StopNotice } from "./notice.ts";
import { NO_DEFAULT_LIMITS } from "./default_limits.ts";
import { startRedis } from "./redis_fixture.ts";
import { linkPath } from "./sign_in/links.ts";
import { createPasswordHasher } from "./sign_in/password.ts";
import { createConsole } from "./web/app.tsx";
import { readAssets } from "./web/assets.ts";
import type { ConsoleDeps } from "./web/context.ts";

/**
 * The console in a real browser: the whole life of a key, keyboard, and axe on
 * every page in three looks. Pictures go to the folder in `CONSOLE_SCREENSHOTS`.
 * Run by `browser_test.ts` in a process of its own.
 */

/** What axe looks for: everything once, then what the other looks could change. */
const LOOKS = [
  { name: "light", colorScheme: "light", width: 1280, rules: [] },
  { name: "dark", colorScheme: "dark", width: 1280, rules: ["color-contrast"] },
  {
    name: "narrow",
    colorScheme: "light",
    width: 390,
    rules: ["scrollable-region-focusable", "target-size"],
  },
] as const;

/** Widths at which the layout changes, or is about to. */
const WIDTHS = [360, 720, 900, 901, 1040, 1180, 1600];
const EMAIL = "ada@example.org";

interface Site extends AsyncDisposable {
  origin: string;
  deps: ConsoleDeps;
  stops: StopNotice[];
}

/** The console on a socket, with real passwords. */
async function startSite(): Promise<Site> {
  const redis = await startRedis();
  const stops: StopNotice[] = [];
  const handler = Promise.withResolvers<ReturnType<typeof createConsole>>();
  const server = serve({
    hostname: "127.0.0.1",
    port: 0,
    handler: async (request, info) =>
      (await handler.promise).fetch(request, {
        remoteIp: info.remoteAddr.hostname,
      }),
    onError: () => new Response(null, { status: 500 }),
  });
  const origin = `http://127.0.0.1:${server.port}`;
  const deps = createConsoleDeps({
    redis: await redis.connect(),
    writer: await redis.connect(),
    sendStop: (notice) => {
      stops.push(notice);
      return Promise.resolve();
    },
    hasher: await createPasswordHasher(),
    assets: await readAssets(),
    oidc: null,
    randomBytes,
    now: () => Date.now(),
    log: silentLog,
    publicUrl: new URL(origin),
    apiUrl: "http://127.0.0.1:8080/v1",
    defaultLimits: NO_DEFAULT_LIMITS,
  });
  handler.resolve(createConsole(deps));
  return {
    origin,
    deps,
    stops,
    [Symbol.asyncDispose]: async () => {
      await server.stop({ graceMs: 1_000, lastWordMs: 100 });
      await redis[Symbol.asyncDispose]();
    },
  };
}

/** A page that fails the test when the browser complains about it. */
async function openPage(context: BrowserContext, faults: string[]) {
  const page = await context.newPage();
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(message.text());
  });
  return page;
}

async function setUp(page: Page, { origin, deps }: Site): Promise<void> {
  const ownerId = await deps.owners.first();
  const secret = await deps.links.make({ kind: "set_up", ownerId });
  await page.goto(origin + linkPath(secret));
  await page.getByLabel("E-mail").fill(EMAIL);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Create account" }).click();
  await page.waitForURL("**/keys");
}

async function lifeOfAKey(
  page: Page,
  { origin, stops, deps }: Site,
): Promise<void> {
  await page.getByRole("link", { name: "Create key" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Description").fill("Billing service");
  await dialog.getByLabel("Requests per minute").fill("600");
  await dialog.getByRole("button", { name: "Create key" }).click();
  const value = await page.getByLabel("API key").inputValue();
  assert.ok(isWellFormedKey(value), "the value is shown once");
  assert.ok(!page.url().includes("sk-"), "and is in no address");
  await page.getByLabel("I have stored it").check();
  await page.getByRole("button", { name: "Done" }).click();
  await page.waitForURL(/\/keys\??$/);
  // Chromium does not even have the page to show: it would have to send the form again.
  await assert.rejects(page.goBack(), /ERR_CACHE_MISS/);
  await page.waitForURL("chrome-error://**");
  assert.ok(
    !(await page.content()).includes(value),
    "going back does not show it",
  );
  await page.goto(`${origin}/keys`);

  await page.getByRole("button", { name: "Disable Billing service" }).click();
  await page.getByLabel("Also stop requests").check();
  await page.getByRole("button", { name: "Disable key" }).click();
  await page.getByText("running requests are being stopped").waitFor();
  assert.equal(stops.length, 1);
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
  await dialog.getByRole("button", { name: "Make the new key" }).click();
  const next = await page.getByLabel("API key").inputValue();
  assert.ok(isWellFormedKey(next) && next !== value);
  await page.getByLabel("I have stored it").check();
  await page.getByRole("button", { name: "Done" }).click();

  await page.getByRole("link", { name: "Billing, renamed" }).first().click();
  await page.getByRole("link", { name: "Delete" }).click();
  await dialog.getByLabel("I understand").check();
  await dialog.getByRole("button", { name: "Delete key" }).click();
  await page.getByText("The key is deleted").waitFor();
  const ownerId = await deps.owners.find(EMAIL) ?? "";
  const left = await deps.keys.list(ownerId, {
    filter: "all",
    search: "",
    start: { at: "first" },
    rows: 10,
    day: "20261120",
  });
  assert.equal(left.total, 1);
}

/** Making a key without a mouse: the dialog takes the focus, keeps it and gives it back. */
async function keyboardOnly(page: Page): Promise<void> {
  await page.goto(new URL("/keys", page.url()).href);
  await page.keyboard.press("Tab");
  const first = page.locator(":focus");
  assert.equal(await first.textContent(), "Skip to the content");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.match(await page.locator(":focus").textContent() ?? "", /Create key/);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  assert.equal(await page.locator(":focus").getAttribute("id"), "description");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.match(await page.locator(":focus").textContent() ?? "", /Create key/);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("Made by keyboard");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Store your key now" }).waitFor();
  await page.getByLabel("I have stored it").check();
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("link", { name: "Made by keyboard" }).waitFor();
}

/** Something to look at: keys in every state and a month of use. */
async function fill({ deps }: Site): Promise<string> {
  const ownerId = await deps.owners.find(EMAIL) ?? "";
  const actor = { by: EMAIL, ip: "192.0.2.7" };
  let firstId = "";
  for (const [n, description] of DESCRIPTIONS.entries()) {
    const made = await deps.keys.create({
      ownerId,
      settings: {
        description,
        scopes: ["chat", "models"],
        models: n % 3 === 0 ? ["neutral-3.7-plus"] : [],
        limits: {
          requestsPerMinute: n * 60,
          tokensPerMinute: 0,
          tokensPerDay: n * 100_000,
          concurrency: 0,
        },
        expiresAtMs: n % 4 === 1 ? Date.now() + n * 86_400_000 : null,
      },
      actor,
    });
    if (!made.ok) assert.fail(made.reason);
    firstId ||= made.key.id;
    if (n % 5 === 2) {
      const keyId = made.key.id;
      await deps.keys.disable({ ownerId, keyId, version: null, actor });
    }
    await useKey(deps, ownerId, made.key.id, n);
  }
  return firstId;
}

const DESCRIPTIONS = [
  "Support assistant, production",
  "Nightly summaries of long meetings and everything that was said in them",
  "Staging",
  "数据分析服务",
  "Mobile backend 🔑",
  "Search indexer",
];

async function useKey(
  { redis }: ConsoleDeps,
  ownerId: string,
  keyId: string,
  seed: number,
): Promise<void> {
  const principal = { ownerId, keyId };
  for (let days = 0; days < 30; days++) {
    const fields = Array.from({ length: 24 }, (_, at) => {
      const hour = String(at).padStart(2, "0");
      const wave = Math.sin((days * 24 - at) / 4 + seed);
      const requests = Math.round(60 * (1 + wave));
      return [
        ...[usageField(hour, "requests"), String(requests)],
        ...[usageField(hour, "errors"), String(Math.round(requests / 30))],
        ...[usageField(hour, "promptTokens"), String(requests * 812)],
        ...[usageField(hour, "completionTokens"), String(requests * 344)],
      ];
    });
    const day = usageDay(Date.now() - days * 86_400_000);
    await redis.command(["HSET", usageKey(principal, day), ...fields.flat()]);
    // One key's numbers stand for all of the owner's.
    const all = ownerUsageKey(ownerId, day);
    await redis.command(["HSET", all, ...fields.flat()]);
  }
  await redis.command(
    [
      "HSET",
      limiterKey(principal),
      "lu",
      String(Date.now() - seed * 4_000_000),
    ],
  );
}

/** Every page there is, by the path a signed-in owner opens it with. */
const PAGES = (keyId: string): [name: string, path: string][] => [
  ["keys", "/keys"],
  ["keys-search", "/keys?search=production"],
  ["keys-nothing", "/keys?search=zzz"],
  ["keys-disabled", "/keys?filter=disabled"],
  ["new", "/keys/new"],
  ["key", `/keys/${keyId}`],
  ["key-30d", `/keys/${keyId}?range=30d`],
  ["edit", `/keys/${keyId}/edit`],
  ["ask-disable", `/keys/${keyId}/ask/disable`],
  ["ask-delete", `/keys/${keyId}/ask/delete`],
  ["ask-rotate", `/keys/${keyId}/ask/rotate`],
  ["usage", "/usage"],
  ["usage-30d", "/usage?range=30d"],
  ["audit", "/audit"],
  ["account", "/account"],
  ["second-factor", "/account/second-factor"],
  ["confirm", "/confirm"],
  ["not-found", "/nothing"],
];

const BRIEF = ["keys", "key", "new", "ask-delete", "audit", "account"];

async function look(
  browser: Browser,
  site: Site,
  keyId: string,
  state: Awaited<ReturnType<BrowserContext["storageState"]>>,
  { name: look, colorScheme, width, rules }: typeof LOOKS[number],
): Promise<string[]> {
  const findings: string[] = [];
  const inspection = { findings, rules };
  const viewport = { width, height: 844 };
  const signedIn = await browser.newContext({
    colorScheme,
    viewport,
    storageState: state,
  });
  const stranger = await browser.newContext({ colorScheme, viewport });
  const page = await signedIn.newPage();
  // Other looks change colours and widths, which these pages have all of.
  const isBrief = rules.length > 0 &&
    Deno.env.get("CONSOLE_SCREENSHOTS") === undefined;
  for (const [name, path] of PAGES(keyId)) {
    if (isBrief && !BRIEF.includes(name)) continue;
    await page.goto(site.origin + path);
    await inspect(page, `${look}-${name}`, inspection);
  }
  await page.goto(`${site.origin}/keys`);
  await page.getByRole("link", { name: "Create key" }).first().click();
  await page.getByRole("dialog").waitFor();
  await inspect(page, `${look}-dialog`, inspection);
  await page.getByLabel("Description").fill(`Made in ${look}`);
  await page.getByRole("dialog").getByRole("button", { name: "Create key" })
    .click();
  await page.getByRole("heading", { name: "Store your key now" }).waitFor();
  await inspect(page, `${look}-once`, inspection);
  const outside = await stranger.newPage();
  await outside.goto(`${site.origin}/sign-in`);
  await inspect(outside, `${look}-sign-in`, inspection);
  await signedIn.close();
  await stranger.close();
  return findings;
}

/** Notes a page, or a table in it, that has to be scrolled sideways. */
async function measure(
  page: Page,
  name: string,
  findings: string[],
): Promise<void> {
  const overflow = await page.evaluate(
    `Math.max(...[document.documentElement, ...document.querySelectorAll(".table-box:not(.plain)")]
      .map((box) => box.scrollWidth - box.clientWidth))`,
  );
  if (Number(overflow) > 0) findings.push(`${name}: ${overflow}px too wide`);
}

/** Pages on which something does not fit at one of {@link WIDTHS}. */
async function cutOff(
  browser: Browser,
  site: Site,
  keyId: string,
  state: Awaited<ReturnType<BrowserContext["storageState"]>>,
): Promise<string[]> {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  const findings: string[] = [];
  for (const path of ["/keys", `/keys/${keyId}`, "/audit", "/account"]) {
    await page.goto(site.origin + path);
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 844 });
      await measure(page, `${path} at ${width}`, findings);
    }
  }
  await context.close();
  return findings;
}

interface Inspection {
  findings: string[];
  /** Empty: all of axe's. */
  rules: readonly string[];
}

/** axe's serious findings, and anything that makes the page scroll sideways. */
async function inspect(
  page: Page,
  name: string,
  { findings, rules }: Inspection,
): Promise<void> {
  const folder = Deno.env.get("CONSOLE_SCREENSHOTS");
  if (folder !== undefined) {
    await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
  }
  await measure(page, name, findings);
  // Evaluated by the debugger, so the page's own policy need not allow it.
  await page.evaluate(axe.source);
  const found: { id: string; impact: string; nodes: { html: string }[] }[] =
    JSON.parse(
      String(
        await page.evaluate(
          `axe.run(document, ${
            JSON.stringify({
              resultTypes: ["violations"],
              ...(rules.length === 0 ? {} : { runOnly: rules }),
            })
          }).then((r) => JSON.stringify(r.violations))`,
        ),
      ),
    );
  for (const { id, impact, nodes } of found) {
    if (impact === "serious" || impact === "critical") {
      findings.push(`${name}: ${id} ${nodes[0]?.html}`);
    }
  }
}

Deno.test({
  name: "the console in a browser",
  // The driver keeps pipes and timers of its own until its process ends.
  sanitizeOps: false,
  sanitizeResources: false,
  fn: (t) => inBrowser(t, findChromium() ?? assert.fail("no Chromium")),
});

async function inBrowser(t: Deno.TestContext, path: string): Promise<void> {
  await using site = await startSite();
  const browser = await chromium.launch({
    executablePath: path,
    args: CHROMIUM_ARGS,
  });
  try {
    const faults: string[] = [];
    const context = await browser.newContext({
      viewport: { width: 1280, height: 844 },
    });
    const page = await openPage(context, faults);
    await t.step("the first owner signs up", () => setUp(page, site));
    await t.step("the whole life of a key", () => lifeOfAKey(page, site));
    await t.step("a key by keyboard only", () => keyboardOnly(page));
    const keyId = await fill(site);
    const state = await context.storageState();
    for (const one of LOOKS) {
      await t.step(`axe on every page, ${one.name}`, async () => {
        assert.deepEqual(await look(browser, site, keyId, state, one), []);
      });
    }
    await t.step("nothing is cut off at any width", async () => {
      assert.deepEqual(await cutOff(browser, site, keyId, state), []);
    });
    await t.step(
      "without JavaScript",
      () => withoutScript(browser, site, state),
    );
    await t.step("no page broke the content security policy", () => {
      assert.deepEqual(faults, []);
    });
  } finally {
    await browser.close();
  }
}

async function withoutScript(
  browser: Browser,
  site: Site,
  state: Awaited<ReturnType<BrowserContext["storageState"]>>,
): Promise<void> {
  const context = await browser.newContext({
    javaScriptEnabled: false,
    storageState: state,
  });
  const page = await context.newPage();
  await page.goto(`${site.origin}/keys`);
  await page.getByRole("link", { name: "Create key" }).click();
  await page.getByLabel("Description").fill("Made without a script");
  await page.getByRole("button", { name: "Create key" }).click();
  assert.ok(isWellFormedKey(await page.getByLabel("API key").inputValue()));
  await page.goto(`${site.origin}/keys`);
  await page.getByRole("link", { name: "Made without a script" }).click();
  await page.getByRole("link", { name: "Disable" }).click();
  await page.getByRole("button", { name: "Disable key" }).click();
  await page.getByText("The key is disabled").waitFor();
  await context.close();
}
