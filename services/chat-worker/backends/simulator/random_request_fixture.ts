/** Random valid request bodies that mix every field of the specification. */

/** A body as a client sends it. */
export type WireBody = { [field: string]: unknown };

const QUESTIONS = [
  "Why is the sky blue?",
  "Book 2 nights in Oslo for Anna, please.",
  "Wie backe ich Brot?",
  "你好，今天天气怎么样？",
  "Answer briefly: 17 + 4?",
  "😀 or 🎉?",
  "x",
];
/** Some are said often, so that answers are really cut. */
const STOPS = ["the", "\n", ".", " is", "and ", "e", "不", "}", "a\u0301"];

const WEATHER_PARAMETERS = {
  type: "object",
  properties: {
    location: { type: "string", minLength: 1 },
    unit: { type: "string", enum: ["celsius", "fahrenheit"] },
    days: { type: "integer", minimum: 1, maximum: 10 },
  },
  required: ["location", "days"],
  additionalProperties: false,
};
const BOOK_PARAMETERS = {
  type: "object",
  properties: {
    guest: { anyOf: [{ type: "string" }, { type: "null" }] },
    nights: { type: "array", items: { type: "integer" }, maxItems: 3 },
  },
  required: ["guest"],
};
const TOOLS = [
  {
    name: "get_weather",
    description: "Weather of a city",
    parameters: WEATHER_PARAMETERS,
  },
  { name: "book", parameters: BOOK_PARAMETERS },
  { name: "now" },
].map((detail) => ({ type: "function", function: detail }));
/** Asks for two calls at once. */
const TWO_PLACES = "What's the weather in Rome in celsius, and in Paris?";
/** What schemas the answer or a call must fit, by name; absent: any object. */
export const PARAMETERS: { readonly [tool: string]: unknown } = {
  get_weather: WEATHER_PARAMETERS,
  book: BOOK_PARAMETERS,
};

type Random = () => number;

/** The body that these random numbers make. */
export function randomBody(random: Random): WireBody {
  const one = <T>(...values: T[]): T | undefined =>
    values[Math.floor(random() * values.length)];
  const some = <T>(values: readonly T[]): T[] =>
    values.filter(() => random() < 0.5);
  /** The field with one of the values, or in half of all cases nothing. */
  const maybe = (name: string, ...values: unknown[]): WireBody =>
    random() < 0.5 ? {} : { [name]: one(...values) };
  const tools = random() < 0.6 ? some(TOOLS) : [];
  const asksForLogprobs = random() < 0.3;
  return {
    model: "neutral-3.7-plus",
    messages: messagesOf(one, random),
    max_tokens: one(1, 5, 17, 60, 200, 200),
    ...maybe("seed", 0, 1, -7, 2 ** 40),
    ...maybe("n", 1, 2, 3, null),
    ...maybe("temperature", 0, 0.3, 1, 2, null),
    ...maybe("top_p", 0, 0.1, 0.9, 1),
    ...maybe("presence_penalty", -2, 0, 1.5),
    ...maybe("frequency_penalty", -2, 0.5, 2),
    ...maybe("repetition_penalty", 0.5, 1, 1.3),
    ...maybe("stop", one(...STOPS), some(STOPS).slice(0, 4), null),
    ...maybe("enable_thinking", true, true, false),
    ...maybe("thinking_budget", 1, 9),
    ...maybe("response_format", ...formats()),
    ...(asksForLogprobs
      ? { logprobs: true, ...maybe("top_logprobs", 0, 3) }
      : {}),
    ...(tools.length === 0 ? {} : {
      tools,
      ...maybe("tool_choice", "auto", "none", "required", {
        type: "function",
        function: { name: tools.at(-1)?.function.name },
      }),
      ...maybe("parallel_tool_calls", true, false),
    }),
  };
}

function formats(): unknown[] {
  return [
    { type: "text" },
    { type: "json_object" },
    {
      type: "json_schema",
      json_schema: { name: "weather", schema: WEATHER_PARAMETERS },
    },
    {
      type: "json_schema",
      json_schema: { name: "booking", strict: true, schema: BOOK_PARAMETERS },
    },
  ];
}

function messagesOf(
  one: <T>(...values: T[]) => T | undefined,
  random: Random,
): unknown[] {
  const asked = random() < 0.5 ? TWO_PLACES : one(...QUESTIONS);
  const question = { role: "user", content: asked };
  const system = { role: "system", content: "Answer as JSON." };
  const history = [
    { role: "user", content: [{ type: "text", text: "Rome?" }] },
    {
      role: "assistant",
      content: null,
      tool_calls: [{
        id: "call_1",
        type: "function",
        function: { name: "get_weather", arguments: '{"location":"Rome"}' },
      }],
    },
    { role: "tool", tool_call_id: "call_1", content: '{"degrees":21}' },
  ];
  return [
    ...(random() < 0.3 ? [system] : []),
    ...(random() < 0.2 ? history : []),
    ...(random() < 0.9 ? [question] : [{ role: "user", content: "Go on." }]),
  ];
}
