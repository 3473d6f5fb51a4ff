/**
 * What real clients send and real servers answer, through edge, bus and worker: a file
 * below `chat/` for each case. `case_file.ts` describes the format.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { DEFAULT_MODEL_ID, parseCatalog } from "@gateway/shared/models/catalog";
import {
  type ScriptedServer,
  startScriptedServer,
  type Step,
} from "../support/model_servers/scripted_server.ts";
import { CLOSE, PAUSE } from "../support/model_servers/model_answers.ts";
import { chat, type OpenGateway } from "../support/gateway/open.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { readSources } from "../support/repository/source_files.ts";
import { assembled } from "./assembled.ts";
import { type CorpusCase, parseCase } from "./case_file.ts";

const backends = [
  { type: "openai", base_url: "http://127.0.0.1:9/v1", model: "theirs" },
];

/** On a busy machine, no edge may take its worker for lost and offer a job twice. */
const SLOWER = 20;

/** The default model with these members. */
const catalogOf = (members: CorpusCase["model"]) =>
  parseCatalog({ models: [{ id: DEFAULT_MODEL_ID, ...members, backends }] });

/** Enough for `data: {`. */
const CRUMBS = 7;
/** What comes in one packet is read at once; what comes apart, event by event. */
const DELIVERIES: { [how: string]: (response: Uint8Array) => Step[] } = {
  "in one packet": (response) => [{ send: response }, CLOSE],
  // The head in one packet, and the first bytes of the body each in one of their own.
  "in crumbs": (response) => {
    const at = piecesOf(response, /(?<=\r\n\r\n)/)[0]?.length ?? 0;
    const crumbs = [...response.subarray(at, at + CRUMBS)]
      .map((byte) => Uint8Array.of(byte));
    return [
      { send: response.subarray(0, at) },
      ...crumbs.flatMap((send) => [{ send }, PAUSE]),
      { send: response.subarray(at + CRUMBS) },
      CLOSE,
    ];
  },
  "event by event": (response) => [
    ...piecesOf(response, /(?<=\n\n)/).flatMap((send) => [{ send }, PAUSE]),
    CLOSE,
  ],
};

/** Bytes, cut where a pattern for them as characters matches. */
function piecesOf(bytes: Uint8Array, where: RegExp): Uint8Array[] {
  const text = Buffer.from(bytes).toString("latin1");
  return text.split(where).map((piece) => Buffer.from(piece, "latin1"));
}

Deno.test("every case of the corpus is read through the gateway", async (t) => {
  await using server = startScriptedServer({ reply: () => [CLOSE] });
  const door = { catalog: catalogOf({}) };
  await using gateway = await startGateway("open", { door, slower: SLOWER });
  await gateway.addWorker({ baseUrl: server.baseUrl });
  const files = readSources(["tests/corpus/chat"], /\.txt$/);
  assert.ok(files.length > 0);
  for (const { path, text } of files) {
    const name = path.replace(/^.*\/|\.txt$/g, "");
    const given = parseCase(text);
    for (const [how, stepsOf] of Object.entries(DELIVERIES)) {
      server.reply = () => stepsOf(given.response ?? new Uint8Array());
      const where = { gateway, server };
      await t.step(`${name} ${how}`, () => check(given, where));
    }
  }
});

async function check(
  given: CorpusCase,
  { gateway, server }: { gateway: OpenGateway; server: ScriptedServer },
): Promise<void> {
  const { model, request, response, status, answer, forwarded } = given;
  const before = server.requests.length;
  const edge = Object.keys(model).length === 0
    ? gateway.edge
    : await gateway.addEdge({
      door: { catalog: catalogOf(model) },
      slower: SLOWER,
    });
  const reply = await chat(edge, request);
  const text = await reply.text();
  assert.equal(reply.status, status, text.slice(0, 500));
  assert.partialDeepStrictEqual(assembled(text), answer);
  const received = server.requests.slice(before);
  // More than one would cost the work of the model twice.
  assert.equal(received.length, response === null ? 0 : 1);
  assert.partialDeepStrictEqual(received[0]?.json() ?? {}, forwarded);
}
