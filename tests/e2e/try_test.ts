/**
 * Guarantee: the console's page "Try it" sends a real request through an edge, and the
 * code that it shows does the same with a key of the reader's. Its limits, and browsers
 * that leave: `services/key-admin/web/try_test.ts`.
 */
import assert from "node:assert/strict";
import { LANGUAGES } from "../../services/key-admin/domain/try/code.ts";
import type { TryKind } from "../../services/key-admin/domain/try/request.ts";
import {
  type Answer,
  type TestClient,
  tryForm,
  tryFormOf,
  upload,
} from "../../services/key-admin/console_fixture.ts";
import { silence } from "./recording_fixture.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { matchIn, openConsole } from "../support/console_client.ts";
import { waitFor } from "../support/wait_for.ts";

const LETTERS = new Map(
  [["quot", '"'], ["#39", "'"], ["lt", "<"], ["gt", ">"], ["amp", "&"]],
);
const plain = (html: string) =>
  html.replace(
    /&(quot|#39|lt|gt|amp);/g,
    (_, name) => LETTERS.get(name) ?? "",
  );

/** The text of an element that has no others inside. */
const shown = (page: string, mark: string) =>
  plain(matchIn(page, new RegExp(`${mark}[^>]*>([^<]*)<`)));

type Send = (browser: TestClient) => Promise<Answer>;
const sends =
  (kind: TryKind, fields: Record<string, string>): Send => (browser) =>
    browser.post(`/try?kind=${kind}`, tryFormOf(kind, fields));
const FILM = {
  ...{ prompt: "A kite", seconds: "4", size: "720x1280" },
};

const FORMS: Record<TryKind, Send> = {
  chat: (browser) => {
    const message = `Say "it's" <fine> \\ [simulator: 20 tokens]`;
    const more = '{"repetition_penalty":1.1}';
    const form = { seed: "7", thinking: "off", more };
    return browser.post("/try", tryForm(message, form));
  },
  image: sends("image", { prompt: "It's", size: "64x64" }),
  speech: sends("speech", {
    ...{ input: "It's me", voice: "echo", response_format: "wav" },
  }),
  transcription: (browser) => upload(browser, { language: "en" }, [silence()]),
  video: sends("video", FILM),
};

/** What `page` shows, and a folder in which the code of all kinds has run. */
interface Ran {
  browser: TestClient;
  page: string;
  /** What the TypeScript has printed. */
  printed: string | undefined;
  read: (name: string) => Promise<Uint8Array<ArrayBuffer>>;
  /** Runs the shell's code, and returns what it prints. */
  curl: () => Promise<string>;
}

const CHECKS: Record<TryKind, (ran: Ran) => Promise<void>> = {
  chat: async ({ page, printed, curl }) => {
    const said = shown(page, 'data-part="content"');
    assert.notEqual(said, "");
    assert.equal(printed, said);
    const stream = await curl();
    assert.match(stream, /^data: \{.*data: \[DONE\]\s*$/s);
    const pieces = [...stream.matchAll(/^data: (\{.*)$/gm)]
      .map(([, data = ""]) => JSON.parse(data).choices[0]?.delta.content ?? "");
    assert.equal(pieces.join(""), said);
  },
  image: async ({ page, read }) => {
    const picture = await read("image-1.png");
    assert.ok(page.includes(`;base64,${picture.toBase64()}"`));
  },
  speech: async ({ page, read, curl }) => {
    const sound = await read("speech.wav");
    assert.ok(page.includes(`;base64,${sound.toBase64()}"`));
    await curl();
    assert.deepEqual(await read("speech.wav"), sound);
  },
  transcription: async ({ page, printed, curl }) => {
    const said = shown(page, 'data-part="content"');
    assert.match(said, /You sent silence\.wav/);
    assert.equal(printed, `${said}\n`);
    assert.equal(JSON.parse(await curl()).text, said);
  },
  video: async ({ browser, page, read }) => {
    const film = await read("video.mp4");
    assert.equal(new TextDecoder().decode(film.subarray(4, 8)), "ftyp");
    const again = plain(matchIn(page, /formaction="([^"#]+)/));
    await waitFor(async () => {
      const { text } = await browser.post(again, tryFormOf("video", FILM));
      return /<video src="[^"]+"/.test(text);
    }, { what: "the video on the page" });
  },
};

/** Sends all forms and runs the TypeScript of their pages as one program, whose types are checked. */
async function runCode(
  { state }: Cluster,
  browser: TestClient,
  cwd: string,
): Promise<Record<string, Ran>> {
  const run = async (command: string, ...args: string[]) => {
    const { code, stdout, stderr } = await new Deno.Command(command, {
      ...{ args, cwd },
      env: { OPENAI_API_KEY: state.api_key, NO_COLOR: "1" },
      signal: AbortSignal.timeout(60_000),
    }).output();
    const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
    assert.equal(code, 0, text(stderr));
    return text(stdout);
  };
  const read = (name: string) => Deno.readFile(`${cwd}/${name}`);
  const file = silence();
  await Deno.writeFile(`${cwd}/${file.name}`, await file.bytes());
  const runs: Record<string, Ran> = {};
  let main = "";
  for (const [kind, send] of Object.entries(FORMS)) {
    const { text: page } = await send(browser);
    const [curl = "", code] = LANGUAGES.map((language) =>
      shown(page, `id="code-${language}"`)
    );
    const node = 'import process from "node:process";\n';
    await Deno.writeTextFile(`${cwd}/${kind}.ts`, node + code);
    main += `console.log("\\n= ${kind}");\nawait import("./${kind}.ts");\n`;
    runs[kind] = {
      ...{ browser, page, printed: undefined, read },
      curl: () => run("sh", "-c", curl),
    };
  }
  await Deno.writeTextFile(`${cwd}/main.ts`, main);
  const config = new URL("../../deno.json", import.meta.url).pathname;
  const args = ["run", "-A", "--check", `--config=${config}`, "main.ts"];
  const printed = await run(Deno.execPath(), ...args);
  const [, ...parts] = printed.split(/\n= (\w+)\n/);
  for (const [kind, ran] of Object.entries(runs)) {
    ran.printed = parts[parts.indexOf(kind) + 1];
  }
  return runs;
}

Deno.test("Try it, from the console through an edge", async (t) => {
  await using cluster = await startCluster();
  const browser = await openConsole(cluster);
  const folder = await Deno.makeTempDir({ prefix: "gateway_try_" });
  try {
    const runs = await runCode(cluster, browser, folder);
    for (const [kind, check] of Object.entries(CHECKS)) {
      await t.step(
        `the code for ${kind} gets the answer that was shown`,
        () => check(runs[kind] ?? assert.fail(kind)),
      );
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
