/**
 * From the bytes of a body to a checked request, what every request pays:
 * `deno bench bench/request_bench.ts`
 */
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { parseChatRequest } from "@gateway/shared/openai/request";
import { decodeJson } from "../services/edge-auth/http/json_body.ts";

const catalog = catalogFromSimulator("http://127.0.0.1:9/v1");
const PROSE = "The quick brown fox jumps over the lazy dog. ";

function bytesOf(messages: number, content: string): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({
    model: "neutral-3.7-plus",
    stream: true,
    temperature: 0.7,
    messages: Array.from({ length: messages }, (_, index) => ({
      role: index % 2 === 0 ? "user" : "assistant",
      content,
    })),
  }));
}

const BODIES: [name: string, bytes: Uint8Array][] = [
  ["1 message, 1 kB", bytesOf(1, PROSE.repeat(22))],
  ["20 messages, 5 kB", bytesOf(20, PROSE.repeat(5))],
  ["20 messages, 6 kB, CJK", bytesOf(20, "敏捷的棕色狐狸跳过懒狗。".repeat(7))],
  ["20 messages, 1 MB", bytesOf(20, PROSE.repeat(1_150))],
];

for (const [group, bytes] of BODIES) {
  const body = decodeJson(bytes);
  Deno.bench("decodeJson", { group }, () => {
    decodeJson(bytes);
  });
  Deno.bench("parseChatRequest", { group }, () => {
    parseChatRequest(body, catalog);
  });
  Deno.bench("all", { group, baseline: true }, () => {
    parseChatRequest(decodeJson(bytes), catalog);
  });
}
