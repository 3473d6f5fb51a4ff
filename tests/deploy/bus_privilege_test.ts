// Promise: deploy/nats/nats.conf lets a service's user do only what the service does.
// With the stolen password of one service, an intruder cannot act as another.
import assert from "node:assert/strict";
import { PermissionViolationError } from "nats";
import { connectTestLink, type TestLink } from "../support/bus_link.ts";
import {
  makeSecrets,
  startDeployedNats,
} from "../support/deployed/deployed_stores.ts";
import { waitFor } from "../support/wait_for.ts";

const NOTHING = new Uint8Array();
type Operation = PermissionViolationError["operation"];

/** Every kind of subject, and some that no service uses. */
const SUBJECTS = [
  "gw.v1.chat.job.W1",
  "gw.v1.chat.any",
  "gw.v1.chat.body.W1.R1",
  "gw.v1.chat.ctl.W1",
  "gw.v1.edge.E1.s.R1.1",
  "gw.v1.beat.worker.W1",
  "gw.v1.beat.edge.E1",
  "gw.v1.key.changed",
  "_INBOX_edge.X.echo",
  "_INBOX_edge.X.1",
  "_INBOX_worker.X.echo",
  "_INBOX_worker.X.1",
  "_INBOX_admin.X.echo",
  "_INBOX_admin.X.1",
  "_INBOX.X.1",
  "$SYS.REQ.SERVER.PING",
  "$JS.API.INFO",
  "gw.v1.chat",
  "gw.v2.chat.any",
  "other",
];
const WILDCARDS = [">", "gw.>", "gw.v1.edge.>", "gw.v1.*.*", "_INBOX_edge.>"];

interface User {
  name: string;
  secret: string;
  inboxPrefix: string;
  publishes: string[];
  subscribes: string[];
}

const USERS: User[] = [
  {
    name: "edge-auth",
    secret: "nats_edge_password",
    inboxPrefix: "_INBOX_edge",
    publishes: [
      "gw.v1.chat.job.W1",
      "gw.v1.chat.any",
      "gw.v1.chat.body.W1.R1",
      "gw.v1.chat.ctl.W1",
      "gw.v1.beat.edge.E1",
      "_INBOX_edge.X.echo",
    ],
    subscribes: [
      "gw.v1.edge.E1.s.R1.1",
      "gw.v1.beat.worker.W1",
      "gw.v1.key.changed",
      "_INBOX_edge.X.echo",
      "_INBOX_edge.X.1",
      "_INBOX_edge.>",
    ],
  },
  {
    name: "chat-worker",
    secret: "nats_worker_password",
    inboxPrefix: "_INBOX_worker",
    publishes: [
      "gw.v1.edge.E1.s.R1.1",
      "gw.v1.beat.worker.W1",
      "_INBOX_worker.X.echo",
    ],
    subscribes: [
      "gw.v1.chat.job.W1",
      "gw.v1.chat.body.W1.R1",
      "gw.v1.chat.ctl.W1",
      "gw.v1.beat.edge.E1",
      "_INBOX_worker.X.echo",
      "_INBOX_worker.X.1",
    ],
  },
  {
    name: "key-admin",
    secret: "nats_admin_password",
    inboxPrefix: "_INBOX_admin",
    publishes: ["gw.v1.key.changed", "_INBOX_admin.X.echo"],
    subscribes: ["_INBOX_admin.X.echo", "_INBOX_admin.X.1"],
  },
];

function refusals(test: TestLink, operation: Operation) {
  return test.errors.flatMap((error) =>
    error instanceof PermissionViolationError && error.operation === operation
      ? [error.subject]
      : []
  );
}

/** Waits for the expected number of refusals, and for one more round trip. */
async function refusedOf(
  test: TestLink,
  operation: Operation,
  count: number,
): Promise<string[]> {
  await waitFor(() => refusals(test, operation).length >= count, {
    what: () => `refusals, not only ${refusals(test, operation).join(" ")}`,
  });
  await test.link.flush();
  return refusals(test, operation).sort();
}

Deno.test("ASVS 13.2.2: a user of the bus may do what its service does and nothing else", async (t) => {
  await using secrets = await makeSecrets();
  await using nats = await startDeployedNats(secrets);
  for (const { name, secret, inboxPrefix, ...may } of USERS) {
    const password = await secrets.read(secret);
    await using test = await connectTestLink([nats.server], {
      credentials: { user: name, password },
      inboxPrefix,
    });
    await t.step(`${name} publishes`, async () => {
      const denied = SUBJECTS.filter((one) => !may.publishes.includes(one));
      for (const subject of SUBJECTS) test.link.publish(subject, NOTHING);
      assert.deepEqual(
        await refusedOf(test, "publish", denied.length),
        denied.sort(),
      );
    });
    await t.step(`${name} subscribes`, async () => {
      const all = [...SUBJECTS, ...WILDCARDS];
      const denied = all.filter((one) => !may.subscribes.includes(one));
      for (const subject of all) test.link.subscribe(subject, () => {});
      assert.deepEqual(
        await refusedOf(test, "subscription", denied.length),
        denied.sort(),
      );
    });
    if (name !== "chat-worker") continue;
    await t.step(
      "the worker subscribes to the shared job subject only in the workers' queue group",
      async () => {
        const listen = (queue: string) =>
          test.link.subscribe("gw.v1.chat.any", () => {}, { queue });
        const before = refusals(test, "subscription").length;
        listen("chat-worker");
        await test.link.flush();
        assert.equal(refusals(test, "subscription").length, before);
        listen("thieves");
        const after = await refusedOf(test, "subscription", before + 1);
        assert.equal(after.length, before + 1);
      },
    );
  }
  const password = await secrets.read("nats_admin_password");
  const strangers = [
    ["no credentials", undefined],
    ["another's password", { user: "edge-auth", password }],
    ["an unknown user", { user: "root", password }],
    ["the bare name", { user: "key-admin", password: "" }],
  ] as const;
  for (const [name, credentials] of strangers) {
    await t.step(
      `ASVS 13.2.1, 13.2.3: NATS refuses a client with ${name}`,
      async () => {
        await assert.rejects(
          connectTestLink([nats.server], {
            ...(credentials === undefined ? {} : { credentials }),
            timing: { firstConnectMs: 0, dialMs: 1_000 },
          }),
          /Authorization Violation/,
        );
      },
    );
  }
});
