/**
 * A model server that costs nearly nothing, so that a benchmark measures gateways.
 * Prints the port it got. `stream: true` gets `--tokens` chunks, one every
 * `--pace-ms`; everything else one short answer at once.
 */
const encoder = new TextEncoder();

/** Number of an option such as `--tokens=64`. */
function numberOption(name: string, fallback: number): number {
  const prefix = `--${name}=`;
  const given = Deno.args.find((arg) => arg.startsWith(prefix));
  return given === undefined ? fallback : Number(given.slice(prefix.length));
}

const tokens = numberOption("tokens", 64);
const paceMs = numberOption("pace-ms", 20);

const WHOLE = encoder.encode(JSON.stringify({
  id: "chatcmpl-mock",
  object: "chat.completion",
  created: 1_700_000_000,
  model: "mock",
  choices: [{
    index: 0,
    message: { role: "assistant", content: "Hello! How can I help you today?" },
    finish_reason: "stop",
  }],
  usage: { prompt_tokens: 9, completion_tokens: 9, total_tokens: 18 },
}));

function chunk(choices: unknown[], usage: unknown): Uint8Array<ArrayBuffer> {
  return encoder.encode(`data: ${
    JSON.stringify({
      id: "chatcmpl-mock",
      object: "chat.completion.chunk",
      created: 1_700_000_000,
      model: "mock",
      choices,
      usage,
    })
  }\n\n`);
}

const choice = (delta: object, finish_reason: string | null) => [{
  index: 0,
  delta,
  finish_reason,
}];
const FIRST = chunk(choice({ role: "assistant", content: "" }, null), null);
const TOKEN = chunk(choice({ content: "token " }, null), null);
const LAST = chunk(choice({}, "stop"), null);
const USAGE = chunk([], {
  prompt_tokens: 9,
  completion_tokens: tokens,
  total_tokens: 9 + tokens,
});
const DONE = encoder.encode("data: [DONE]\n\n");

function stream(): ReadableStream<Uint8Array<ArrayBuffer>> {
  let sent = 0;
  let timer: ReturnType<typeof setInterval> | undefined;
  return new ReadableStream({
    start(controller) {
      controller.enqueue(FIRST);
      timer = setInterval(() => {
        controller.enqueue(TOKEN);
        sent += 1;
        if (sent < tokens) return;
        clearInterval(timer);
        for (const part of [LAST, USAGE, DONE]) controller.enqueue(part);
        controller.close();
      }, paceMs);
    },
    cancel: () => clearInterval(timer),
  });
}

const JSON_HEADERS = { "content-type": "application/json" };
const SSE_HEADERS = { "content-type": "text/event-stream" };

Deno.serve({
  hostname: "127.0.0.1",
  port: 0,
  onListen: ({ port }) => {
    Deno.stdout.writeSync(encoder.encode(`${port}\n`));
  },
}, async (request) => {
  const body = await request.text();
  // Looking for the text is cheaper than parsing, and good enough here.
  return /"stream":\s*true/.test(body)
    ? new Response(stream(), { headers: SSE_HEADERS })
    : new Response(WHOLE, { headers: JSON_HEADERS });
});
