import assert from "node:assert/strict";
import {
  createClientAddress,
  parseNetwork,
} from "@gateway/shared/process/client_address";

Deno.test("ASVS 4.1.3, 15.3.4: X-Forwarded-For is believed from the operator's proxies only", async (t) => {
  const addressOf = createClientAddress(
    ["10.0.0.1", "10.0.0.2"].map((text) => parseNetwork(text) ?? assert.fail()),
  );
  const cases: [peer: string, header: string | null, ip: string][] = [
    ["192.0.2.1", null, "192.0.2.1"],
    ["192.0.2.1", "203.0.113.9", "192.0.2.1"],
    ["10.0.0.1", null, "10.0.0.1"],
    ["10.0.0.1", "203.0.113.9", "203.0.113.9"],
    ["10.0.0.1", "1.1.1.1, 203.0.113.9", "203.0.113.9"],
    ["10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"],
    ["10.0.0.1", "10.0.0.2", "10.0.0.2"],
    ["10.0.0.1", "2001:db8::1", "2001:db8::1"],
    ["10.0.0.1", "x<script>", "10.0.0.1"],
    ["10.0.0.1", "", "10.0.0.1"],
  ];
  for (const [peer, header, ip] of cases) {
    await t.step(`${peer} says ${header}`, () => {
      assert.equal(addressOf(peer, header), ip);
    });
  }
});
