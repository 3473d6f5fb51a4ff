/** The page "Try it" in the browser. Run as `life_steps_fixture.ts`. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { until } from "../redis_fixture.ts";
import { recording } from "../../../tests/e2e/media/recording_fixture.ts";
import { IS_WHOLE } from "./chromium_fixture.ts";
import { inspect } from "./inspect_fixture.ts";
import {
  browserTest,
  CLIPBOARD,
  follow,
  press,
  says,
  signedIn,
  type Visit,
} from "./site_fixture.ts";

/** A recording on the disk of the browser. */
const RECORDING = {
  name: "meeting.wav",
  mimeType: "audio/wav",
  buffer: recording(64_044),
};
const TOOLS = JSON.stringify([{
  type: "function",
  function: { name: "get_weather", parameters: { type: "object" } },
}]);

/** A part of the answer. */
const part = (page: Page, name: string) =>
  page.locator(`[data-part="${name}"]`);

const messageOf = (page: Page) => page.getByLabel("Message", { exact: true });

/** Text arrives piece by piece, and Stop ends the request at the API. */
async function streams(page: Page, { site }: Visit): Promise<void> {
  await messageOf(page).fill("[simulator: 4000 tokens, 50 tokens per second]");
  await press(page, "Send");
  const content = part(page, "content");
  await until(async () => (await content.innerText()).length > 10);
  const { length } = await content.innerText();
  await until(async () => (await content.innerText()).length > length);
  assert.ok(await page.getByRole("button", { name: "Send" }).isDisabled());
  await press(page, "Stop");
  await says(page, "stopped by you");
  assert.equal(await site.requests.at(-1)?.outcome, "left");
  assert.match(await part(page, "first").innerText(), /^\d+\.\d\d s$/);
}

/**
 * A mistake is shown at its field, which gets the focus, and nothing is sent; once it
 * is mended, a tool is called.
 */
async function mistake(page: Page, { site }: Visit): Promise<void> {
  const count = site.requests.length;
  await page.getByText("Tools", { exact: true }).click();
  const tools = page.getByLabel("Tools (JSON)");
  await tools.fill('[{"type": "function",}]');
  await press(page, "Send");
  await says(page, "This is not valid JSON. Expected double-quoted property");
  const focused = await page.evaluate("document.activeElement.id");
  assert.equal(focused, "tools");
  assert.equal(site.requests.length, count);
  await inspect(page, "try-errors");
  await tools.fill(TOOLS);
  await messageOf(page).fill("Use get_weather");
  await press(page, "Send");
  await says(page, "tool_calls");
  assert.match(await part(page, "calls").innerText(), /"get_weather"/);
  assert.ok(!await page.getByText("This is not valid JSON").isVisible());
  await inspect(page, "try-calls");
  await tools.fill("");
}

/** The code follows the form, and the answer becomes part of the next request. */
async function conversation(page: Page, { site }: Visit): Promise<void> {
  await page.getByText("TypeScript", { exact: true }).click();
  await messageOf(page).fill("First question");
  await page.getByLabel("System prompt").fill("Be kind");
  const code = page.locator("#code-TypeScript");
  await code.getByText('"content": "First question"').waitFor();
  await page.getByText("Parameters", { exact: true }).click();
  await page.getByLabel("Thinking").selectOption("On");
  await messageOf(page).press("Control+Enter");
  await page.getByText("Continue the conversation").waitFor();
  await inspect(page, "try-answer");
  await press(page, "Continue the conversation");
  await messageOf(page).fill("Second question");
  await press(page, "Send");
  await until(() =>
    site.requests.at(-1)?.body.includes("Second question") === true
  );
  const { messages } = JSON.parse(site.requests.at(-1)?.body ?? "");
  const roles = messages.map(({ role }: { role: string }) => role);
  assert.deepEqual(roles, ["system", "user", "assistant", "user"]);
  await page.locator('button[data-copy="code-TypeScript"]').click();
  await says(page, "Copied");
  const copied = String(await page.evaluate("navigator.clipboard.readText()"));
  assert.match(copied, /client\.chat\.completions\.create/);
}

/** A chat is sent as other endpoints have it, and its text arrives piece by piece. */
async function otherForms(page: Page, { site }: Visit): Promise<void> {
  await follow(page, "Chat");
  await page.getByText("Parameters", { exact: true }).click();
  await page.getByLabel("Thinking").selectOption("On");
  await messageOf(page).fill("[simulator: 120 tokens, 40 tokens per second]");
  const sentAs = page.getByLabel("Sent as");
  const content = part(page, "content");
  const cases = [
    { endpoint: "responses", finish: "completed" },
    { endpoint: "messages", finish: "end_turn" },
  ];
  for (const { endpoint, finish } of cases) {
    await sentAs.selectOption(endpoint);
    await page.locator("#code-curl").getByText(`/v1/${endpoint}`).waitFor();
    await press(page, "Send");
    await until(async () => (await content.innerText()).length > 10);
    assert.equal(await part(page, "finish").innerText(), "");
    assert.match(await part(page, "thinking").innerText(), /^The user says/);
    await part(page, "finish").getByText(finish).waitFor();
    assert.match(await content.innerText(), /^I am the gateway/);
    assert.match(await part(page, "output").innerText(), /^\d{3}$/);
    assert.match(
      site.requests.at(-1)?.request.url ?? "",
      /(responses|messages)$/,
    );
    await inspect(page, `try-${endpoint}`);
  }
  await sentAs.selectOption("");
  await press(page, "Send");
  await page.getByText("Continue the conversation").waitFor();
  await press(page, "Continue the conversation");
  assert.equal(await messageOf(page).inputValue(), "");
}

/** Two texts, their vectors, and how alike they are. */
async function embeddings(page: Page): Promise<void> {
  await follow(page, "Embedding");
  await page.getByLabel("Text", { exact: true }).fill("A red kite");
  await page.getByLabel("Text to compare with").fill("A kite");
  await press(page, "Send");
  await part(page, "cosine").getByText(/^0\.[5-9]\d+$/).waitFor();
  assert.equal(await part(page, "numbers").innerText(), "256");
  assert.match(await part(page, "content").innerText(), /^\[[^\]]+\]\n+\[/);
  await inspect(page, "try-embedding");
}

/** A request that ends early says so; a session that has ended asks for sign-in. */
async function endings(page: Page, { site }: Visit): Promise<void> {
  await follow(page, "Chat");
  await messageOf(page).fill("[simulator: cut after 5 tokens]");
  await press(page, "Send");
  await says(page, "The connection was lost before the answer was complete");
  await messageOf(page).fill("[simulator: error 429]");
  await press(page, "Send");
  await says(page, "rate_limit_exceeded: ");
  await inspect(page, "try-refused");
  const ownerId = await site.deps.owners.ensure("try@example.org");
  await site.deps.sessions.endOthers(ownerId, null);
  await press(page, "Send");
  await says(page, "Sign in again in another tab");
  assert.equal(await messageOf(page).inputValue(), "[simulator: error 429]");
}

/** Waits until a property of the first element in a figure is as wanted. */
const figure = (page: Page, caption: string) =>
  until(async () =>
    await page.evaluate(
      `(({ firstChild: it } = {}) => it && ${caption})(
        document.querySelector("figure") ?? undefined)`,
    ) === true
  );

/** What a click on the first "Download" saves. */
async function downloads(page: Page, name: string, bytesMin: number) {
  const saved = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download" }).first().click();
  const file = await saved;
  assert.equal(file.suggestedFilename(), name);
  const { size } = await Deno.stat(await file.path());
  assert.ok(size > bytesMin, `${size}`);
}

/** Another kind is a link away; its images are shown, described, and can be saved. */
async function images(page: Page): Promise<void> {
  await follow(page, "Image");
  await page.getByLabel("Prompt").fill("A red kite");
  await page.getByLabel("Size").fill("128x64");
  await page.getByLabel("Images").fill("2");
  await press(page, "Send");
  await page.locator("#code-curl").getByText('"n": 2').waitFor();
  await figure(page, "it.naturalWidth === 128");
  assert.equal(await page.getByAltText("A red kite").count(), 2);
  assert.equal(await part(page, "status").innerText(), "200");
  await inspect(page, "try-image");
  await downloads(page, "image-1.png", 100);
}

/** Speech can be played and saved. */
async function speech(page: Page): Promise<void> {
  await follow(page, "Speech");
  await page.getByLabel("Text").fill("Good morning.");
  await page.getByLabel("Format").selectOption("wav");
  await press(page, "Send");
  await figure(page, "it.duration > 0.5");
  await inspect(page, "try-speech");
  await downloads(page, "speech.wav", 10_000);
}

/** The text of a recording. Without one, the page asks for it. */
async function transcription(page: Page): Promise<void> {
  await follow(page, "Transcription");
  await press(page, "Send");
  await says(page, "Choose a recording");
  await page.getByLabel("Recording").setInputFiles(RECORDING);
  await page.locator("#code-curl").getByText("meeting.wav").waitFor();
  await press(page, "Send");
  await says(page, "You sent meeting.wav, 2.0 seconds long");
  await says(page, "Complete after");
  assert.ok(!await page.getByText("Choose a recording").isVisible());
  await inspect(page, "try-transcription");
}

/** A video can be watched and saved once it is made; Stop ends only the waiting. */
async function video(page: Page): Promise<void> {
  await follow(page, "Video");
  const prompt = page.getByLabel("Prompt");
  await prompt.fill("A red kite [simulator: video takes 3600 s]");
  await page.getByLabel("Size").fill("128x64");
  await press(page, "Send");
  await says(page, "Queued, 0%");
  await press(page, "Stop");
  await says(page, "Stopped by you");
  assert.equal(await part(page, "total").innerText(), "Not complete");
  await inspect(page, "try-video-waiting");
  await press(page, "Refresh");
  await says(page, "Queued, 0%");
  await press(page, "Stop");
  await prompt.fill("A red kite");
  await press(page, "Send");
  await page.locator("figure video").waitFor();
  // It can be played from a moment that was not shown yet.
  await page.evaluate("document.querySelector('video').currentTime = 3");
  await figure(
    page,
    "!it.seeking && it.readyState > 1 && it.currentTime === 3 && it.videoWidth === 720",
  );
  assert.equal(await part(page, "state").innerText(), "");
  await inspect(page, "try-video");
  await downloads(page, "video.mp4", 500);
  await prompt.fill("[simulator: video fails]");
  await press(page, "Send");
  await says(page, "video_generation_failed: ");
}

/** Something that people do on the page; `isShownWithout` as in the other steps. */
interface Step {
  name: string;
  step: typeof streams;
  isShownWithout?: true;
}

/** The answers of all kinds are tested without a script in `web/pages/try/try_test.ts`. */
const STEPS: Step[] = [
  { name: "streamed text, and Stop", step: streams },
  { name: "a mistake in a field", step: mistake },
  { name: "code, and a conversation", step: conversation },
  { name: "responses and messages", step: otherForms },
  { name: "embeddings", step: embeddings, isShownWithout: true },
  { name: "images", step: images },
  { name: "speech", step: speech, isShownWithout: true },
  { name: "a transcription", step: transcription, isShownWithout: true },
  { name: "a video", step: video, isShownWithout: true },
  { name: "answers that end early", step: endings },
];

browserTest("Try it in a browser", async (visit, t) => {
  const { page } = await signedIn(visit, "try@example.org", CLIPBOARD);
  await page.goto("/try");
  for (const { name, step, isShownWithout = false } of STEPS) {
    if (IS_WHOLE || !isShownWithout) {
      await t.step(name, () => step(page, visit));
    }
  }
});
