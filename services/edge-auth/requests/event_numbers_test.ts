// The numbers of events depend on the bytes of the answer alone, however they come.
import assert from "node:assert/strict";
import { EventNumbers } from "./event_numbers.ts";

const decoder = new TextDecoder();
const encode = (text: string) => new TextEncoder().encode(text);

Deno.test("EventNumbers.eventsOf() numbers lines, and leaves out those before", () => {
  const lines = encode('{"a":1}\n{"b":"ü"}\n');
  const all = 'id: 1\ndata: {"a":1}\n\nid: 2\ndata: {"b":"ü"}\n\n';
  assert.equal(decoder.decode(new EventNumbers().eventsOf(lines)), all);
  const late = new EventNumbers(1);
  const second = 'id: 2\ndata: {"b":"ü"}\n\n';
  assert.equal(decoder.decode(late.eventsOf(lines)), second);
  assert.equal(late.isBehind, false);
  const beyond = new EventNumbers(3);
  assert.equal(beyond.eventsOf(lines).length, 0);
  assert.equal(beyond.isBehind, true);
});

const ANSWERS: { events: string; numbered: string }[] = [
  {
    events: "event: a\ndata: 1\n\n: ping\n\ndata: ü\n\n",
    numbered: "event: a\ndata: 1\nid: 1\n\n: ping\ndata: ü\nid: 2\n\n",
  },
  {
    // openai/openai-python#2722: a blank line is an event to it once there was an id.
    events: "data: 1\r\n\r\n: a\r\n: b\r\n\r\n\r\n\r\ndata: 2\r\n\r\n",
    numbered: "data: 1\r\nid: 1\r\n\r\n: a\r\n: b\r\ndata: 2\r\nid: 2\r\n\r\n",
  },
  {
    events: "\n\n: \n\n\ndata: 1\n\n\nevent: b\n\n",
    numbered: ": \ndata: 1\nid: 1\n\nevent: b\nid: 2\n\n",
  },
  {
    events: "id: theirs\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n",
    numbered: "id: theirs\r\ndata: 1\r\nid: 1\r\n\r\ndata: 2\r\nid: 2\r\n\r\n",
  },
  { events: "data: 1\n\ndata: cut", numbered: "data: 1\nid: 1\n\ndata: cut" },
];

Deno.test("EventNumbers.numbered() is the same whole, and byte by byte", () => {
  for (const { events, numbered } of ANSWERS) {
    for (const size of [1, 2, 7, 1_000]) {
      const numbers = new EventNumbers();
      const bytes = encode(events);
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < bytes.length; at += size) {
        pieces.push(numbers.numbered(bytes.subarray(at, at + size)));
      }
      pieces.push(numbers.takeRest());
      const text = pieces.flatMap((piece) => [...piece]);
      assert.equal(decoder.decode(Uint8Array.from(text)), numbered);
    }
  }
});

Deno.test("EventNumbers.numbered() leaves out the comments before where a client reads on", () => {
  const numbers = new EventNumbers(1);
  const events = ": a\n\ndata: 1\n\n: b\n\ndata: 2\n\n";
  const text = decoder.decode(numbers.numbered(encode(events)));
  assert.equal(text, ": b\ndata: 2\nid: 2\n\n");
});
