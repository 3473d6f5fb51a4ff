// Promise: the console's page "Try it" sends a real request through an edge, and the
// code that it shows does the same with a key of the reader's. Its limits, and browsers
// that leave: `services/key-admin/web/try_test.ts`.
import assert from "node:assert/strict";
import { LANGUAGES } from "../../services/key-admin/domain/try/code.ts";
import {
  tryForm,
  tryFormOf,
  upload,
} from "../../services/key-admin/console_fixture.ts";
import { startCluster } from "../support/cluster.ts";
import { matchIn, openConsole } from "../support/console_client.ts";
import { makeTempDir, runProcess } from "../support/process.ts";
import { until } from "../support/wait_for.ts";
import { silence } from "./recording_fixture.ts";

const CONFIG = new URL("../../deno.json", import.meta.url).pathname;
const LETTERS = new Map(
  [["quot", '"'], ["#39", "'"], ["lt", "<"], ["gt", ">"], ["amp", "&"]],
);
const plain = (html: string) =>
  html.replace(/&(quot|#39|lt|gt|amp);/g, (_, name) => LETTERS.get(name) ?? "");

/** The text of an element that has no others inside. */
const shown = (page: string, mark: string) =>
  plain(matchIn(page, new RegExp(`${mark}[^>]*>([^<]*)<`)));
const contentOf = (page: string) => shown(page, 'data-part="content"');

Deno.test("Try it, from the console through an edge", async (t) => {
  await using cluster = await startCluster();
  const browser = await openConsole(cluster);
  await using directory = await makeTempDir();
  const { path: cwd } = directory;
  const env = { OPENAI_API_KEY: cluster.state.api_key, NO_COLOR: "1" };
  const run = (command: string, args: string[]) =>
    runProcess(command, args, {
      ...{ cwd, env },
      signal: AbortSignal.timeout(60_000),
    });
  const read = (name: string) => Deno.readFile(`${cwd}/${name}`);
  const file = silence();
  await Deno.writeFile(`${cwd}/${file.name}`, await file.bytes());

  const film = { prompt: "A kite", seconds: "4", size: "720x1280" };
  const fields = {
    image: { prompt: "It's", size: "64x64" },
    speech: { input: "It's me", voice: "echo", response_format: "wav" },
    video: film,
  };
  const post = (kind: keyof typeof fields) =>
    browser.post(`/try?kind=${kind}`, tryFormOf(kind, fields[kind]));
  const message = `Say "it's" <fine> \\ [simulator: 20 tokens]`;
  const more = { thinking: "off", more: '{"repetition_penalty":1.1}' };
  const pages = {
    chat: await browser.post("/try", tryForm(message, { seed: "7", ...more })),
    image: await post("image"),
    speech: await post("speech"),
    transcription: await upload(browser, { language: "en" }, [file]),
    video: await post("video"),
  };
  /** The TypeScript of all pages as one program, whose types are checked. */
  let main = "";
  const curls: Record<string, string> = {};
  for (const [kind, { text }] of Object.entries(pages)) {
    const [curl = "", code] = LANGUAGES.map((language) =>
      shown(text, `id="code-${language}"`)
    );
    curls[kind] = curl;
    const node = 'import process from "node:process";\n';
    await Deno.writeTextFile(`${cwd}/${kind}.ts`, node + code);
    main += `console.log("\\n= ${kind}");\nawait import("./${kind}.ts");\n`;
  }
  await Deno.writeTextFile(`${cwd}/main.ts`, main);
  const args = ["run", "-A", "--check", `--config=${CONFIG}`, "main.ts"];
  const printed = (await run(Deno.execPath(), args)).split(/\n= (\w+)\n/);
  const printedBy = (kind: string) => printed[printed.indexOf(kind) + 1];
  const curl = (kind: string) => run("sh", ["-c", curls[kind] ?? ""]);

  await t.step("a chat", async () => {
    const said = contentOf(pages.chat.text);
    assert.notEqual(said, "");
    assert.equal(printedBy("chat"), said);
    const stream = await curl("chat");
    assert.match(stream, /^data: \{.*data: \[DONE\]\s*$/s);
    const pieces = [...stream.matchAll(/^data: (\{.*)$/gm)]
      .map(([, data = ""]) => JSON.parse(data).choices[0]?.delta.content ?? "");
    assert.equal(pieces.join(""), said);
  });
  await t.step("a picture", async () => {
    const picture = await read("image-1.png");
    assert.ok(pages.image.text.includes(`;base64,${picture.toBase64()}"`));
  });
  await t.step("speech", async () => {
    const sound = await read("speech.wav");
    assert.ok(pages.speech.text.includes(`;base64,${sound.toBase64()}"`));
    await curl("speech");
    assert.deepEqual(await read("speech.wav"), sound);
  });
  await t.step("a transcription", async () => {
    const said = contentOf(pages.transcription.text);
    assert.match(said, /You sent silence\.wav/);
    assert.equal(printedBy("transcription"), `${said}\n`);
    assert.equal(JSON.parse(await curl("transcription")).text, said);
  });
  await t.step("a video", async () => {
    const bytes = await read("video.mp4");
    assert.equal(new TextDecoder().decode(bytes.subarray(4, 8)), "ftyp");
    const again = plain(matchIn(pages.video.text, /formaction="([^"#]+)/));
    await until(async () => {
      const { text } = await browser.post(again, tryFormOf("video", film));
      return /<video src="[^"]+"/.test(text);
    });
  });
});
