/** Networks of keys: every way to write one, and what is none. */
import assert from "node:assert/strict";
import { addressDigits, networkText, parseKeyNetwork } from "./networks.ts";

const shown = (text: string): string => {
  const parsed = parseKeyNetwork(text);
  return "fault" in parsed ? parsed.fault : networkText(parsed.stored);
};

Deno.test("a network has one form, however it is written", () => {
  const cases = [
    ["10.0.0.0/8", "10.0.0.0/8"],
    ["0.0.0.0/0", "0.0.0.0/0"],
    ["192.0.2.7", "192.0.2.7"],
    ["192.0.2.7/32", "192.0.2.7"],
    ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
    ["::FFFF:192.0.2.7", "192.0.2.7"],
    ["2001:DB8::/32", "2001:db8::/32"],
    ["2001:db8:0:0:0:0:0:1", "2001:db8::1"],
    ["::/0", "::/0"],
    ["64:ff9b::192.0.2.0/120", "64:ff9b::c000:200/120"],
    ["2001:db8:8000::/33", "2001:db8:8000::/33"],
  ] as const;
  for (const [text, expected] of cases) assert.equal(shown(text), expected);
});

Deno.test("a text that is no network is refused with the reason", () => {
  const none = /^Not an IP address/;
  const cases: [string, RegExp][] = [
    ["", none],
    ["office", none],
    ["10.0.0", none],
    ["10.0.0.256", none],
    ["010.0.0.1", none],
    ["10.0.0.0/8/8", none],
    ["1::2::3", none],
    ["1:2:3:4:5:6:7", none],
    ["1:2:3:4:5:6:7::8:9", none],
    ["::10.0.0", none],
    ["fe80::1%eth0", none],
    ["10.0.0.0/33", /number from 0 to 32$/],
    ["10.0.0.0/", /number from 0 to 32$/],
    ["10.0.0.0/08", /number from 0 to 32$/],
    ["::/129", /number from 0 to 128$/],
    ["10.0.0.1/8", /first of the network: 10\.0\.0\.0\/8$/],
    ["2001:db8::1/33", /first of the network: 2001:db8::\/33$/],
  ];
  for (const [text, fault] of cases) assert.match(shown(text), fault, text);
});

Deno.test("an address has the same digits in each of its forms", () => {
  const mapped = addressDigits("::ffff:192.0.2.7");
  assert.equal(mapped, "00000000000000000000ffffc0000207");
  assert.equal(addressDigits("192.0.2.7"), mapped);
  assert.equal(addressDigits("::ffff:c000:207"), mapped);
  assert.equal(addressDigits("fe80::1%eth0"), `fe80${"0".repeat(27)}1`);
  assert.equal(addressDigits("unknown"), null);
});
