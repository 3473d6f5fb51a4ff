// Promise: bodies that never end do not fill the memory of an edge, which serves others
// meanwhile.
import assert from "node:assert/strict";
import { BodyBudget } from "../../services/edge-auth/http/body_budget.ts";
import { amountOf } from "../support/amount.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { until } from "../support/wait_for.ts";
import { encoder, headOf } from "./bodies_fixture.ts";

const HELD = 60;
/** A refused connection is closed two seconds later, so few groups take less time. */
const HELD_AT_ONCE = 30;
const HELD_BYTES = 19_900_000;
/** What an edge holds in all, as `BODIES_BYTES_MAX` says. */
const HELD_IN_ALL_BYTES = 192 * 1024 * 1024;
/** What a key may hold while no other sends bodies: the rest is kept for others. */
const HELD_BY_KEY_BYTES = 2 / 3 * HELD_IN_ALL_BYTES;
/**
 * Most are refused at once. The others have room until they have sent nothing for 15
 * seconds, which only the full run waits for.
 */
const ANSWERED_MIN = HELD - amountOf({ usual: 10, full: 3 });
/** Sixty bodies have 1.2 GB. */
const GROWTH_BYTES_MAX = 500 * 1024 * 1024;

Deno.test("API4: sixty large bodies that never end do not fill the memory, and others are served", async () => {
  const bodyBudget = new BodyBudget({
    bodiesBytesMax: HELD_IN_ALL_BYTES,
    bodyBytesMax: HELD_BYTES,
  });
  await using gateway = await startGateway("limited", { door: { bodyBudget } });
  const limits = { requestsPerMinute: 1, concurrency: 1 };
  const attacker = await gateway.addKey({ limits });
  const victim = await gateway.addKey();
  const { hostname, port } = new URL(gateway.edge.baseUrl);
  const length = `Content-Length: ${HELD_BYTES}`;
  const head = encoder.encode(headOf(attacker.value, length));
  const body = new Uint8Array(HELD_BYTES - 1).fill(0x20);
  const before = Deno.memoryUsage().rss;
  const statuses: string[] = [];
  const connections = new Set<Deno.TcpConn>();
  const holdOne = async () => {
    const connection = await Deno.connect({ hostname, port: Number(port) });
    connections.add(connection);
    const answer = new Uint8Array(64);
    const answered = connection.read(answer).catch(() => null);
    await connection.write(head);
    for (let at = 0; at < body.length;) {
      const piece = body.subarray(at, at + 1_000_000);
      at += await connection.write(piece).catch(() => body.length);
    }
    void answered.then((length) => {
      if (length === null) return;
      statuses.push(new TextDecoder().decode(answer.subarray(9, 12)));
    });
  };
  for (let count = 0; count < HELD; count += HELD_AT_ONCE) {
    await Promise.all(Array.from({ length: HELD_AT_ONCE }, holdOne));
    assert.ok(bodyBudget.bytes <= HELD_BY_KEY_BYTES, `${bodyBudget.bytes}`);
    // The clients are in this process too, and may keep it from Redis for a moment.
    await until(async () => await gateway.status(victim) === 200);
  }
  const growth = Deno.memoryUsage().rss - before;
  assert.ok(growth < GROWTH_BYTES_MAX, `${growth} bytes more`);
  await until(() => statuses.length >= ANSWERED_MIN);
  // 503 where Redis could not say in time whose key it is; 408 for those that had room
  // and then sent nothing for 15 seconds.
  const allowed = ["408", "429", "503"];
  assert.ok(statuses.every((each) => allowed.includes(each)), `${statuses}`);
  for (const connection of connections) connection.close();
  await until(() => bodyBudget.bytes === 0);
});
