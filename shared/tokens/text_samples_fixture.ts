import { createHash } from "node:crypto";

/** Bytes without a pattern, always the same. */
function noise(length: number, name: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += 32) {
    const digest = createHash("sha256").update(`${name}${at}`).digest();
    bytes.set(digest.subarray(0, length - at), at);
  }
  return bytes;
}

const hex = (bytes: Uint8Array) => bytes.toHex();
const NOISE = noise(900, "noise");
const letters = (first: number) =>
  Array.from(NOISE, (byte) => String.fromCharCode(first + byte % 26)).join("");

/** Texts of many kinds, by name. */
export const TEXT_SAMPLES: Readonly<Record<string, string>> = {
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
  ukrainian:
    "Шлюз перевіряє кожен запит за правами його ключа, виконує його на сервері моделі й передає відповідь частинами. Щойно клієнт іде, робота зупиняється.",
  kazakh:
    "Шлюз әр сұраныстың кілтінің құқықтарын тексереді, оны модель серверінде орындайды және жауапты бөліп-бөліп қайтарады.",
  greek:
    "Η πύλη ελέγχει κάθε αίτημα σύμφωνα με τα δικαιώματα του κλειδιού του, το εκτελεί σε έναν διακομιστή και στέλνει πίσω την απάντηση.",
  arabic:
    "تتحقق البوابة من كل طلب وفق صلاحيات مفتاحه، وتنفذه على خادم النموذج، وتعيد الإجابة أولا بأول. عندما يغادر العميل يتوقف العمل في عشر ثانية.",
  hebrew:
    "השער בודק כל בקשה מול ההרשאות של המפתח שלה, מריץ אותה על שרת המודל ומחזיר את התשובה תוך כדי.",
  hindi:
    "गेटवे हर अनुरोध को उसकी कुंजी के अधिकारों से मिलाता है, उसे मॉडल सर्वर पर चलाता है और उत्तर धीरे-धीरे लौटाता है।",
  thai:
    "เกตเวย์ตรวจสอบทุกคำขอกับสิทธิ์ของคีย์ แล้วเรียกใช้บนเซิร์ฟเวอร์โมเดล และส่งคำตอบกลับทีละส่วน",
  amharic: "መግቢያው እያንዳንዱን ጥያቄ ከቁልፉ መብቶች ጋር ያመሳክራል።",
  emoji: "😀😃😄🎉🚀🔥💡✨🤖🦄🧪🪐🫠🥹 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇯🇵 1️⃣",
  typescript:
    'export function createQueue<T>(options: QueueOptions<T>): Queue<T> {\n  const waiting: Entry<T>[] = [];\n  let isPumping = false;\n  return {\n    get pending() {\n      return waiting.length;\n    },\n    add(entry) {\n      waiting.push({ entry, addedAtMs: options.now() });\n      if (!isPumping) void pump().catch((error) => log.error("fault", { error }));\n    },\n  };\n}\n',
  python:
    "def limits(rows, *, per_minute=600):\n    \"\"\"Yield the rows that are over.\"\"\"\n    for row in rows:\n        if row['count'] > per_minute and not row.get('exempt'):\n            yield {**row, 'over_by': row['count'] - per_minute}\n",
  rust:
    "impl<'a, T: Iterator<Item = &'a str>> Lexer<'a, T> {\n    pub fn next(&mut self) -> Option<Token<'a>> {\n        while let Some(c) = self.src.next() { match c { \"{\" => return Some(Token::Open), _ => {} } }\n        None\n    }\n}\n",
  html:
    '<div class="row"><a href="/keys/new?from=list&x=1" data-id="k1">New key</a><br/><span style="color:#ff8800">12</span></div>',
  sql:
    "SELECT k.id, COUNT(*) AS n FROM keys k LEFT JOIN uses u ON u.key_id = k.id WHERE u.at >= '2026-01-01' GROUP BY 1 HAVING COUNT(*) > 10 ORDER BY n DESC;",
  base64: NOISE.toBase64(),
  base64url: NOISE.toBase64({ alphabet: "base64url" }),
  hex: hex(NOISE),
  uuid: Array.from(
    { length: 20 },
    (_, index) =>
      hex(noise(16, `${index}`)).replace(
        /^(.{8})(.{4})(.{4})(.{4})/,
        "$1-$2-$3-$4-",
      ),
  ).join("\n"),
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
  jsonPretty: JSON.stringify(
    {
      model: "neutral",
      messages: [{ role: "user", content: "Say hello." }],
      tools: [{
        type: "function",
        function: {
          name: "get_weather",
          description: "Weather of a city",
          parameters: {
            type: "object",
            properties: {
              city: { type: "string" },
              days: { type: "integer", minimum: 1 },
            },
            required: ["city"],
          },
        },
      }],
    },
    null,
    2,
  ),
  csv: Array.from(
    { length: 30 },
    (_, i) =>
      `${i},2026-11-${10 + i % 20}T12:00:0${i % 10}Z,${
        (i * 7919 % 1000) / 100
      },key_${i}`,
  ).join("\n"),
  digits:
    "31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679",
  spaces: " ".repeat(500),
  newlines: "\n".repeat(500),
  tabs: "\t".repeat(300),
  mixedSpace: "\n    \t \r\n  ".repeat(50),
  indented: ("\n" + " ".repeat(24) + "x").repeat(30),
  punctuation: "!@#$%^&*()_+-=[]{}|;':\",./<>?`~".repeat(6),
  dashes: "-".repeat(400),
  equals: "=".repeat(200) + "\n" + "*".repeat(200),
  letters: "a".repeat(400),
  lower: letters(0x61),
  upper: letters(0x41),
  shout:
    "THE GATEWAY CHECKS EVERY REQUEST AGAINST THE RIGHTS OF ITS KEY AND STREAMS THE ANSWER BACK.",
  title: "The Quick Brown Fox Jumps Over The Lazy Dog ".repeat(6),
  camel:
    "getUserNameFromRequestHeadersOrThrowUnauthorizedError setMaxRetryCount isRateLimitedByOwnerOrKey "
      .repeat(3),
  snake:
    "get_user_name_from_request_headers max_retry_count_per_minute is_rate_limited "
      .repeat(3),
  url:
    "https://example.org/v1/chat/completions?model=neutral-3.7&session=8f14e45fceea167a5a36dedd4bea2543#frag "
      .repeat(3),
  log:
    "2026-11-20T14:35:07.123Z WARN edge-auth[4121]: lease_lost keyId=key_01HZ count=3 took=12.5ms addr=10.0.0.7:51234\n"
      .repeat(6),
  math:
    "∑_{i=1}^{n} x_i² ≤ ∫₀^∞ e^{-t²} dt ≈ √π/2; ∀ε>0 ∃δ: |x−a|<δ ⇒ |f(x)−L|<ε",
  box: "┌────┬────┐\n│ a  │ b  │\n├────┼────┤\n│ 1  │ 2  │\n└────┴────┘\n"
    .repeat(4),
  vietnamese:
    "Cổng kiểm tra mọi yêu cầu theo quyền của khóa, chạy nó trên máy chủ mô hình và truyền câu trả lời về dần dần.",
  turkish:
    "Ağ geçidi her isteği anahtarının haklarına göre denetler, bir model sunucusunda çalıştırır ve yanıtı akış hâlinde geri gönderir.",
  polish:
    "Brama sprawdza każde żądanie względem uprawnień klucza, wykonuje je na serwerze modelu i przesyła odpowiedź strumieniem.",
  latin1: "ÀÉÎÕÜàéîõüñçßøåæ".repeat(10),
  control: "\u0000\u0001\u0007\u001b[31m".repeat(20),
  privateUse: "\ue000\uf8ff\u{f0000}".repeat(20),
  rareCjk: "𠀀𠀁𠀂𪚥𰻞".repeat(10),
};
