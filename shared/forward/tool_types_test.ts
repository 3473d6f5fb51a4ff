/** Tools that are taken out of forwarded bodies. */
import assert from "node:assert/strict";
import { withoutTools } from "./tool_types.ts";

Deno.test("withoutTools() takes out tools of the types that are named, and nothing else", () => {
  const own = '{"type":"function","name":"a","x":1.0}';
  const plain = '{ "name":"Bash","input_schema":{"type":"web_search"}}';
  const search = '{"type":"web_search"}';
  const cases = [
    {
      text: `{"tools":[${own}, ${search} ],"n":1}`,
      left: `{"tools":[${own}],"n":1}`,
      dropped: ["web_search"],
    },
    // Servers refuse an empty list (vllm#39780), and choices without tools.
    {
      text: `{"tools":[${search},${search}]}`,
      left: "{}",
      dropped: ["web_search"],
    },
    {
      text:
        ` { "tools" : [${search}] , "n":1.0, "tool_choice":{"type":"auto"}` +
        `,"parallel_tool_calls":true ,"x":[] }`,
      left: ' { "n":1.0 ,"x":[] }',
      dropped: ["web_search"],
    },
    { text: `{"tools":[${own},${plain}]}`, left: null, dropped: [] },
    { text: '{"tools":{"type":"web_search"}}', left: null, dropped: [] },
    {
      text: '{"input":[{"tools":[{"type":"web_search"}]}]}',
      left: null,
      dropped: [],
    },
    {
      text: `{"tools":[{"type":"namespace","tools":[${own}]},${plain}]}`,
      left: `{"tools":[${plain}]}`,
      dropped: ["namespace"],
    },
  ];
  for (const { text, left, dropped } of cases) {
    const result = withoutTools(text, ["web_search", "namespace"]);
    assert.deepEqual(result, { text: left ?? text, dropped }, text);
  }
});

Deno.test("withoutTools() takes out tools whose types begin as one that ends with *", () => {
  const dated = '{"type":"web_search_20250305","name":"web_search"}';
  const fetching = '{"type":"web_fetch_20250910","name":"web_fetch"}';
  const plain = '{"name":"web_search","input_schema":{}}';
  const text = `{"tools":[${dated},${plain},${fetching}]}`;
  const cases = [
    { type: "web_search_*", left: [plain, fetching] },
    { type: "web_*", left: [plain] },
    { type: "*", left: [plain] },
    { type: "web_search", left: [dated, plain, fetching] },
    { type: "search*", left: [dated, plain, fetching] },
  ];
  for (const { type, left } of cases) {
    const result = withoutTools(text, [type]);
    assert.equal(result.text, `{"tools":[${left.join(",")}]}`, type);
  }
});

Deno.test("withoutTools() also looks into the items of the input that name tools", () => {
  const own = '{"type":"function","name":"a","x":1.0}';
  const search = '{"type":"web_search"}';
  const namespace = `{"type":"namespace","name":"mcp","tools":[${own}]}`;
  const item = (...tools: string[]) =>
    `{"type":"additional_tools","role":"developer","tools":[${tools}]}`;
  const text = '{"type":"message","content":"additional_tools"}';
  const cases = [
    {
      input: [item(search, own, namespace), text],
      left: [item(own), text],
      dropped: ["web_search", "namespace"],
    },
    {
      input: [text, item(search), item(own)],
      left: [text, item(own)],
      dropped: ["web_search"],
    },
    { input: [item(namespace)], left: [], dropped: ["namespace"] },
    // Tools of other items are no business of ours, nor is an item without any.
    { input: [item(own), text], left: null, dropped: [] },
    { input: [item()], left: null, dropped: [] },
    { input: [`{"tools":[${search}]}`], left: null, dropped: [] },
  ];
  const types = ["web_search", "namespace"];
  for (const { input, left, dropped } of cases) {
    const body = (items: string[]) => `{"n":1.0,"input":[${items}],"tools":[]}`;
    const result = withoutTools(body(input), types);
    assert.deepEqual(result, { text: body(left ?? input), dropped });
  }
  const both = `{"tools":[${search}],"input":[${item(namespace)}]}`;
  const dropped = ["web_search", "namespace"];
  assert.deepEqual(withoutTools(both, types), {
    text: '{"input":[]}',
    dropped,
  });
  const prose = '{"input":"additional_tools","tools":[]}';
  assert.deepEqual(withoutTools(prose, types), { text: prose, dropped: [] });
});
