// Promise: the most that a text may have is about what it has or more, whatever it
// is made of, and what it likely has is near that. The tokenizers of OpenAI stand
// for those of all models; nothing but this test uses them.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { countTokens as countCl100k } from "gpt-tokenizer/esm/encoding/cl100k_base";
import { countTokens as countO200k } from "gpt-tokenizer/esm/encoding/o200k_base";
import type { ChatRequest } from "../openai/chat.ts";
import { chatRequest } from "../../tests/support/chat_request.ts";
import { promptTokensLikely, promptTokensMost } from "./prompt_tokens.ts";
import { textTokensLikely, textTokensMost } from "./text_tokens.ts";

const NOISE = Uint8Array.from(
  { length: 900 },
  (_, at) => createHash("sha256").update(`${at}`).digest()[0] ?? 0,
);

/** Texts of many kinds. */
const SAMPLES: Readonly<Record<string, string>> = {
  english:
    "A gateway checks every request against the rights of its key, runs it on a model server and streams the answer back. When the client leaves, the work stops within a tenth of a second, and only what was produced is charged. Limits hold over any number of replicas, because one script in the store decides about each request, all or nothing.",
  german:
    "Ein Gateway prüft jede Anfrage gegen die Rechte ihres Schlüssels, führt sie auf einem Modellserver aus und gibt die Antwort fortlaufend zurück. Verlässt der Aufrufer die Verbindung, endet die Arbeit innerhalb einer Zehntelsekunde; Höchstgeschwindigkeitsbegrenzungen und Donaudampfschifffahrtsgesellschaften ändern daran nichts.",
  french:
    "La passerelle vérifie chaque requête, l'exécute sur un serveur de modèles et renvoie la réponse au fur et à mesure. Dès que le client s'en va, le travail s'arrête ; ce qui a déjà été produit est facturé, rien d'autre.",
  chinese:
    "网关检查每个请求的密钥权限,在模型服务器上运行它,并把答案逐字传回。客户端离开时,工作在十分之一秒内停止,只对已经产生的内容收费。无论有多少副本,限制都是准确的。魑魅魍魉饕餮龘靐齉爨。",
  japanese:
    "ゲートウェイはすべてのリクエストをキーの権限と照らし合わせ、モデルサーバーで実行し、答えを少しずつ返します。クライアントが離れると、作業は十分の一秒以内に止まります。薔薇、憂鬱、檸檬。",
  korean:
    "게이트웨이는 모든 요청을 키의 권한과 대조하고 모델 서버에서 실행하여 답을 흘려보냅니다. 클라이언트가 떠나면 작업은 십분의 일 초 안에 멈춥니다.",
  russian:
    "Шлюз проверяет каждый запрос по правам его ключа, выполняет его на сервере модели и передаёт ответ по частям. Когда клиент уходит, работа останавливается за десятую долю секунды.",
  greek:
    "Η πύλη ελέγχει κάθε αίτημα σύμφωνα με τα δικαιώματα του κλειδιού του, το εκτελεί σε έναν διακομιστή και στέλνει πίσω την απάντηση.",
  hindi:
    "गेटवे हर अनुरोध को उसकी कुंजी के अधिकारों से मिलाता है, उसे मॉडल सर्वर पर चलाता है और उत्तर धीरे-धीरे लौटाता है।",
  emoji: "😀😃😄🎉🚀🔥💡✨🤖🦄🧪🪐🫠🥹 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇯🇵 1️⃣",
  typescript:
    'export function createQueue<T>(options: QueueOptions<T>): Queue<T> {\n  const waiting: Entry<T>[] = [];\n  let isPumping = false;\n  return {\n    get pending() {\n      return waiting.length;\n    },\n    add(entry) {\n      waiting.push({ entry, addedAtMs: options.now() });\n      if (!isPumping) void pump().catch((error) => log.error("fault", { error }));\n    },\n  };\n}\n',
  python:
    "def limits(rows, *, per_minute=600):\n    \"\"\"Yield the rows that are over.\"\"\"\n    for row in rows:\n        if row['count'] > per_minute and not row.get('exempt'):\n            yield {**row, 'over_by': row['count'] - per_minute}\n",
  rust:
    "impl<'a, T: Iterator<Item = &'a str>> Lexer<'a, T> {\n    pub fn next(&mut self) -> Option<Token<'a>> {\n        while let Some(c) = self.src.next() { match c { \"{\" => return Some(Token::Open), _ => {} } }\n        None\n    }\n}\n",
  sql:
    "SELECT k.id, COUNT(*) AS n FROM keys k LEFT JOIN uses u ON u.key_id = k.id WHERE u.at >= '2026-01-01' GROUP BY 1 HAVING COUNT(*) > 10 ORDER BY n DESC;",
  json: JSON.stringify({
    id: "chatcmpl-9",
    created: 1795000000,
    choices: [{
      index: 0,
      delta: { content: "Hello" },
      logprobs: null,
      finish_reason: null,
    }],
    usage: { prompt_tokens: 12, completion_tokens: 345, total_tokens: 357 },
    flags: [true, false, null, 0.125, -3],
  }).repeat(3),
  csv: Array.from(
    { length: 30 },
    (_, i) =>
      `${i},2026-11-${10 + i % 20}T12:00:0${i % 10}Z,${
        (i * 7919 % 1000) / 100
      },key_${i}`,
  ).join("\n"),
  url:
    "https://example.org/v1/chat/completions?model=neutral-3.7&session=8f14e45fceea167a5a36dedd4bea2543#frag "
      .repeat(3),
  log:
    "2026-11-20T14:35:07.123Z WARN edge-auth[4121]: lease_lost keyId=key_01HZ count=3 took=12.5ms addr=10.0.0.7:51234\n"
      .repeat(6),
  vietnamese:
    "Cổng kiểm tra mọi yêu cầu theo quyền của khóa, chạy nó trên máy chủ mô hình và truyền câu trả lời về dần dần.",
  turkish:
    "Ağ geçidi her isteği anahtarının haklarına göre denetler, bir model sunucusunda çalıştırır ve yanıtı akış hâlinde geri gönderir.",
  base64: NOISE.toBase64(),
  hex: NOISE.toHex(),
  indented: ("\n" + " ".repeat(24) + "x").repeat(30),
  capitals: "THE GATEWAY CHECKS EVERY REQUEST AGAINST ITS KEY. ".repeat(3),
};

function tokensOf(text: string): { least: number; most: number } {
  const counts = [countO200k(text), countCl100k(text)];
  return { least: Math.min(...counts), most: Math.max(...counts) };
}

/** Scripts that a newer tokenizer needs half as many tokens for. */
const CHEAPER_NOW = ["russian", "greek", "hindi", "vietnamese", "emoji"];

Deno.test("textTokensMost() is not less than tokenizers find, and textTokensLikely() is near it", () => {
  for (const [name, text] of Object.entries(SAMPLES)) {
    const { least, most } = tokensOf(text);
    const estimate = textTokensMost(text);
    assert.ok(estimate >= most, `${name}: ${estimate} of ${most}`);
    const bound = CHEAPER_NOW.includes(name) ? 5.5 : 2.2;
    const isCapitals = name === "capitals";
    assert.ok(estimate <= (isCapitals ? 4 : bound) * least, name);
    const share = textTokensLikely(text) / Math.sqrt(least * most);
    assert.ok(share > 0.6 && share < 2.5, `${name}: ${share} times`);
  }
});

Deno.test("textTokensMost() of a long text, of which it sees a part, is as good and takes little time", () => {
  for (const [name, text] of Object.entries(SAMPLES)) {
    const long = text.repeat(Math.ceil(200_000 / text.length));
    const whole = textTokensMost(text) * (long.length / text.length);
    const share = textTokensMost(long) / whole;
    assert.ok(share > 0.9 && share < 1.2, `${name}: ${share} of the whole`);
  }
  assert.equal(textTokensMost(""), 0);
  const text = (SAMPLES.english ?? "").repeat(30_000);
  const startedAtMs = performance.now();
  textTokensMost(text);
  assert.ok(performance.now() - startedAtMs < 20, `${text.length} characters`);
});

Deno.test("the tokens of a prompt are those of its texts and tools, 4 a message, and more an image", () => {
  const english = SAMPLES.english ?? "";
  const tools: ChatRequest["tools"] = [
    { type: "function", function: { name: "f", description: english } },
  ];
  const call = {
    id: "call_8f14e45fceea167a",
    type: "function" as const,
    function: { name: "get_weather", arguments: '{"city":"Zürich","days":3}' },
  };
  const url = `data:,${"x".repeat(9_999)}`;
  const request = chatRequest({
    messages: [
      { role: "system", content: english },
      {
        role: "user",
        content: [
          { type: "text", text: english },
          { type: "image_url", image_url: { url } },
        ],
      },
      { role: "assistant", content: null, tool_calls: [call] },
    ],
    tools,
  });
  const texts = [
    english,
    english,
    JSON.stringify(tools),
    JSON.stringify([call]),
  ];
  const rows = [
    [promptTokensMost, textTokensMost, 1_500],
    [promptTokensLikely, textTokensLikely, 1_000],
  ] as const;
  for (const [ofPrompt, ofText, ofImage] of rows) {
    const expected = texts.map(ofText).reduce((sum, count) => sum + count);
    assert.equal(ofPrompt(request), expected + 3 * 4 + ofImage);
  }
});
