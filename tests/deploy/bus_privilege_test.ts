// Promise: deploy/nats/nats.conf lets a service's user do only what the service does.
// With the stolen password of one service, an intruder cannot act as another.
import assert from "node:assert/strict";
import { PermissionViolationError } from "nats";
import { connectTestLink, type TestLink } from "../support/servers/bus_link.ts";
import {
  makeSecrets,
  startDeployedNats,
} from "../support/deployed/deployed_stores.ts";
import { waitFor } from "../support/wait_for.ts";

type Operation = PermissionViolationError["operation"];

/** Every kind of subject, by a short name, and some that no service uses. */
const SUBJECTS: Record<string, string> = {
  job: "gw.v1.chat.job.W1",
  any: "gw.v1.chat.any",
  body: "gw.v1.chat.body.W1.R1",
  control: "gw.v1.chat.ctl.W1",
  turns: "gw.v1.edge.E1.turns",
  turnReturn: "gw.v1.chat.turns.W1",
  mediaReturn: "gw.v1.media.turns.W1",
  mediaJob: "gw.v1.media.job.W1",
  mediaAny: "gw.v1.media.any",
  mediaBody: "gw.v1.media.body.W1.R1",
  mediaControl: "gw.v1.media.ctl.W1",
  frames: "gw.v1.edge.E1.frames",
  notices: "gw.v1.edge.E1.s.R1.1",
  workerBeat: "gw.v1.beat.worker.W1",
  edgeBeat: "gw.v1.beat.edge.E1",
  keyChanged: "gw.v1.key.changed",
  backends: "gw.v1.backends.worker.W1",
  backendsWanted: "gw.v1.backends.wanted",
  overrides: "gw.v1.overrides",
  overridesWanted: "gw.v1.overrides.wanted",
  use: "gw.v1.use.worker.W1",
  edgeEcho: "_INBOX_edge.X.echo",
  edgeReply: "_INBOX_edge.X.1",
  workerEcho: "_INBOX_worker.X.echo",
  workerReply: "_INBOX_worker.X.1",
  mediaEcho: "_INBOX_media.X.echo",
  mediaReply: "_INBOX_media.X.1",
  adminEcho: "_INBOX_admin.X.echo",
  adminReply: "_INBOX_admin.X.1",
  otherReply: "_INBOX.X.1",
  kept: "gw.v1.kept.R1",
  stopKept: "gw.v1.stop.kept",
  streamCreate: "$JS.API.STREAM.CREATE.gateway_kept",
  streamUpdate: "$JS.API.STREAM.UPDATE.gateway_kept",
  streamInfo: "$JS.API.STREAM.INFO.gateway_kept",
  streamPurge: "$JS.API.STREAM.PURGE.gateway_kept",
  streamGet: "$JS.API.STREAM.MSG.GET.gateway_kept",
  streamDirect: "$JS.API.DIRECT.GET.gateway_kept",
  otherStream: "$JS.API.STREAM.CREATE.other",
  streamDelete: "$JS.API.STREAM.DELETE.gateway_kept",
  system: "$SYS.REQ.SERVER.PING",
  streams: "$JS.API.INFO",
  group: "gw.v1.chat",
  nextVersion: "gw.v2.chat.any",
  other: "other",
};
const WILDCARDS: Record<string, string> = {
  all: ">",
  gateway: "gw.>",
  allFrames: "gw.v1.edge.>",
  twoWords: "gw.v1.*.*",
  edgeReplies: "_INBOX_edge.>",
};

/**
 * The complete permissions of each user: of which service, what it publishes and
 * subscribes.
 */
const USERS = {
  "edge-auth": [
    "edge",
    "job any body control mediaJob mediaAny mediaBody mediaControl turnReturn mediaReturn edgeBeat edgeEcho " +
    "stopKept streamCreate streamUpdate streamInfo streamPurge streamGet streamDirect",
    "kept stopKept frames notices turns workerBeat keyChanged overrides edgeEcho edgeReply edgeReplies",
  ],
  "chat-worker": [
    "worker",
    "frames turns workerBeat backends overridesWanted use workerEcho kept streamGet",
    "job body control turnReturn edgeBeat overrides backendsWanted use workerEcho workerReply " +
    "stopKept keyChanged",
  ],
  "media-worker": [
    "media",
    "frames turns workerBeat backends overridesWanted use mediaEcho",
    "mediaJob mediaBody mediaControl mediaReturn edgeBeat overrides backendsWanted use mediaEcho mediaReply",
  ],
  "key-admin": [
    "admin",
    "keyChanged backendsWanted overrides adminEcho",
    "workerBeat edgeBeat backends adminEcho adminReply",
  ],
} as const;

/** The subjects that are not among these names. */
function subjectsBut(allowed: string, all: Record<string, string>): string[] {
  const names = allowed.split(" ");
  return Object.entries(all).filter(([name]) => !names.includes(name))
    .map(([, subject]) => subject).sort();
}

function refusals(test: TestLink, operation: Operation) {
  return test.errors.flatMap((error) =>
    error instanceof PermissionViolationError && error.operation === operation
      ? [error.subject]
      : []
  );
}

/** The subjects that were refused: waits for as many, and for one more round trip. */
async function refusedOf(test: TestLink, operation: Operation, count: number) {
  await waitFor(() => refusals(test, operation).length >= count, {
    what: () => `refusals, not only ${refusals(test, operation).join(" ")}`,
  });
  await test.link.flush();
  return refusals(test, operation).sort();
}

Deno.test("ASVS 13.2.1, 13.2.2, 13.2.3: a user of the bus may do what its service does, and nothing else", async () => {
  await using secrets = await makeSecrets();
  await using nats = await startDeployedNats(secrets);
  for (const [name, may] of Object.entries(USERS)) {
    const [service, publishes, subscribes] = may;
    const password = await secrets.read(`nats_${service}_password`);
    await using test = await connectTestLink([nats.server], {
      credentials: { user: name, password },
      inboxPrefix: `_INBOX_${service}`,
    });
    const refuses = async (operation: Operation, denied: string[]) => {
      const refused = await refusedOf(test, operation, denied.length);
      assert.deepEqual(refused, denied, `${name} ${operation}`);
    };
    for (const subject of Object.values(SUBJECTS)) {
      test.link.publish(subject, new Uint8Array());
    }
    await refuses("publish", subjectsBut(publishes, SUBJECTS));
    const all = { ...SUBJECTS, ...WILDCARDS };
    for (const subject of Object.values(all)) {
      test.link.subscribe(subject, () => {});
    }
    const denied = subjectsBut(subscribes, all);
    await refuses("subscription", denied);
    const [family] = /^\w+(?=-worker$)/.exec(name) ?? [];
    if (family === undefined) continue;
    // Workers share jobs only as a queue group.
    const any = `gw.v1.${family}.any`;
    test.link.subscribe(any, () => {}, { queue: name });
    await refuses("subscription", denied);
    test.link.subscribe(any, () => {}, { queue: "thieves" });
    await refuses("subscription", [...denied, any].sort());
  }
  const password = await secrets.read("nats_admin_password");
  const strangers = {
    "no credentials": {},
    "another's password": { credentials: { user: "edge-auth", password } },
    "an unknown user": { credentials: { user: "root", password } },
    "the bare name": { credentials: { user: "key-admin", password: "" } },
  };
  const timing = { firstConnectMs: 0, dialMs: 1_000 };
  for (const [name, stranger] of Object.entries(strangers)) {
    const options = { ...stranger, timing };
    const connecting = connectTestLink([nats.server], options);
    await assert.rejects(connecting, /Authorization Violation/, name);
  }
});
