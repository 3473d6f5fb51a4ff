/** The client's address behind proxies. */
import assert from "node:assert/strict";
import { createClientAddress, parseNetwork, siteOf } from "./client_address.ts";

Deno.test("addresses of one IPv6 site are one client", () => {
  const one = siteOf("2001:db8:1:2::1");
  assert.equal(one, "20010db800010002/64");
  assert.equal(siteOf("2001:db8:1:2:ffff:ffff:ffff:ffff"), one);
  assert.notEqual(siteOf("2001:db8:1:3::1"), one);
  assert.equal(siteOf("fe80::1%eth0"), "fe80000000000000/64");
  assert.equal(siteOf("192.0.2.1"), "192.0.2.1");
  assert.equal(siteOf("::ffff:192.0.2.1"), "192.0.2.1");
});

const PROXIES = ["10.0.0.0/8", "172.16.0.0/12", "192.0.2.9", "fd00::/8"]
  .map((text) => parseNetwork(text) ?? assert.fail(text));
/** Peer, X-Forwarded-For, client. */
const CHAINS: { peer: string; forwardedFor: string | null; client: string }[] =
  [
    { peer: "10.1.2.3", forwardedFor: null, client: "10.1.2.3" },
    { peer: "10.1.2.3", forwardedFor: "", client: "10.1.2.3" },
    { peer: "10.1.2.3", forwardedFor: "198.51.100.7", client: "198.51.100.7" },
    {
      peer: "10.1.2.3",
      forwardedFor: "203.0.113.1, 198.51.100.7",
      client: "198.51.100.7",
    },
    {
      peer: "10.1.2.3",
      forwardedFor: "198.51.100.7, 192.0.2.9,10.9.9.9",
      client: "198.51.100.7",
    },
    {
      peer: "10.1.2.3",
      forwardedFor: "198.51.100.7:4711",
      client: "198.51.100.7",
    },
    {
      peer: "10.1.2.3",
      forwardedFor: "[2001:db8::1]:4711",
      client: "2001:db8::1",
    },
    { peer: "fd12::1", forwardedFor: "2001:db8::1", client: "2001:db8::1" },
    {
      peer: "10.1.2.3",
      forwardedFor: "198.51.100.7, unknown",
      client: "10.1.2.3",
    },
    {
      peer: "10.1.2.3",
      forwardedFor: "10.0.0.1, 10.0.0.2",
      client: "10.0.0.1",
    },
    { peer: "192.0.2.8", forwardedFor: "198.51.100.7", client: "192.0.2.8" },
    { peer: "11.0.0.1", forwardedFor: "198.51.100.7", client: "11.0.0.1" },
    {
      peer: "172.31.255.255",
      forwardedFor: "198.51.100.7",
      client: "198.51.100.7",
    },
    { peer: "172.32.0.0", forwardedFor: "198.51.100.7", client: "172.32.0.0" },
    {
      peer: "::ffff:10.1.2.3",
      forwardedFor: "::ffff:198.51.100.7",
      client: "198.51.100.7",
    },
    {
      peer: "10.1.2.3",
      forwardedFor: `${"1.1.1.1, ".repeat(2_000)}198.51.100.7`,
      client: "198.51.100.7",
    },
  ];

Deno.test("ASVS 4.1.3, 15.3.4: entries of trusted proxies are used, and none before them", () => {
  const addressOf = createClientAddress(PROXIES);
  const trustsNobody = createClientAddress([]);
  for (const { peer, forwardedFor, client } of CHAINS) {
    const what = `${peer} ${forwardedFor?.slice(0, 50)}`;
    assert.equal(addressOf(peer, forwardedFor), client, what);
    assert.equal(trustsNobody(peer, forwardedFor), trustsNobody(peer, null));
  }
  assert.equal(trustsNobody("::ffff:192.0.2.1", null), "192.0.2.1");
});

const GOOD = ["0.0.0.0/0", "10.0.0.1/32", "::/0", "::1", "1:2:3:4:5:6:7:8"];
const BAD = [
  "",
  "localhost",
  "10.0.0",
  "10.0.0.256",
  "10.0.0.0/33",
  "10.0.0.0/",
  "10.0.0.0/8/8",
  "10.0.0.0/-1",
  "::1/129",
  "1::2::3",
  "1:2:3:4:5:6:7",
  "1:2:3:4:5:6:7::8",
  "1:2:3:4:5:6:7:8:9",
  "g::1",
  "::10.0.0.1:1",
];

Deno.test("parseNetwork() takes addresses and prefixes and nothing else", () => {
  for (const text of GOOD) assert.ok(parseNetwork(text), text);
  for (const text of BAD) assert.equal(parseNetwork(text), null, text);
});
