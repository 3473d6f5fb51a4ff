// Promise: an alert reaches the webhook and the mailbox that compose is told of, with a
// link to what to do; a webhook that hangs delays no mail, and is tried again.
import assert from "node:assert/strict";
import { findFreePorts } from "../../deploy/up/ports.ts";
import {
  canRun,
  leaveOut,
  makeTempDir,
  startProcess,
} from "../support/process.ts";
import { until } from "../support/wait_for.ts";
import { startMailbox } from "./mailbox_fixture.ts";

const SCRIPT = new URL(
  "../../deploy/observability/alertmanager.sh",
  import.meta.url,
).pathname;
const RUNBOOK = "https://console.test/runbooks#noworkers";
/** Alertmanager gives a receiver at least ten seconds. */
const RETRY_MS = 40_000;

/** The path of Alertmanager; Debian calls it by a longer name. */
async function findProgram(): Promise<string | undefined> {
  const folders = (Deno.env.get("PATH") ?? "").split(":");
  for (const name of ["alertmanager", "prometheus-alertmanager"]) {
    for (const path of folders.map((folder) => `${folder}/${name}`)) {
      if (await canRun(path, "--version")) return path;
    }
  }
}

/** Starts Alertmanager as compose does. */
async function start(program: string, env: Record<string, string>) {
  const owner = new AsyncDisposableStack();
  const { path } = owner.use(await makeTempDir());
  await Deno.symlink(program, `${path}/alertmanager`);
  const [port = 0] = findFreePorts(1);
  const manager = owner.use(startProcess({
    command: "/bin/sh",
    args: [
      SCRIPT,
      `--storage.path=${path}`,
      `--web.listen-address=127.0.0.1:${port}`,
      "--cluster.listen-address=",
    ],
    env: {
      PATH: `${path}:/usr/bin:/bin`,
      ALERTMANAGER_DIR: path,
      ALERT_GROUP_WAIT: "1s",
      ALERT_GROUP_INTERVAL: "1s",
      ...env,
    },
  }));
  const url = `http://127.0.0.1:${port}`;
  return { url, manager, [Symbol.asyncDispose]: () => owner.disposeAsync() };
}

async function fire(url: string): Promise<void> {
  const labels = {
    alertname: "NoWorkers",
    severity: "page",
    console: "https://console.test",
  };
  const annotations = { summary: "a hears nobody", runbook_url: RUNBOOK };
  const response = await fetch(`${url}/api/v2/alerts`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify([{ labels, annotations }]),
  });
  assert.equal(response.status, 200, await response.text());
}

/** A webhook whose first call hangs until the second one. */
function startWebhook() {
  const bodies: unknown[] = [];
  const hanging = Promise.withResolvers<Response>();
  const end = () => hanging.resolve(new Response("late"));
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    async (request) => {
      bodies.push(await request.json());
      if (bodies.length === 1) return await hanging.promise;
      end();
      return new Response("ok");
    },
  );
  return {
    url: `http://127.0.0.1:${server.addr.port}/services/T0/B0`,
    bodies,
    async [Symbol.asyncDispose]() {
      end();
      await server.shutdown();
    },
  };
}

async function arrives(program: string): Promise<void> {
  await using webhook = startWebhook();
  await using mailbox = startMailbox();
  const login = "ops%40example.org:p%27%3A%25w";
  await using alertmanager = await start(program, {
    ALERT_WEBHOOK_URL: webhook.url,
    ALERT_EMAIL_URL: `smtp://${login}@localhost:${mailbox.port}` +
      "?from=gateway%40example.org&to=on-call%40example.org&tls=off",
  });
  const isReady = `${alertmanager.url}/-/ready`;
  await until(async () => {
    const ready = await fetch(isReady).catch(() => null);
    await ready?.body?.cancel();
    return ready?.ok ?? false;
  });
  await fire(alertmanager.url);

  const mail = await until(() => mailbox.mails[0] ?? false);
  assert.ok(webhook.bodies.length < 2, "the mail did not wait for the webhook");
  assert.equal(mail.to, "on-call@example.org");
  assert.equal(mail.from, "gateway@example.org");
  assert.equal(mail.login, "\0ops@example.org\0p':%w");
  assert.match(mail.text, /Subject:.*PAGE: NoWorkers/i);
  assert.match(mail.text, /a hears nobody/);
  assert.ok(mail.text.replaceAll("=\r\n", "").includes("runbooks#noworkers"));

  await until(() => webhook.bodies.length > 1, RETRY_MS);
  assert.partialDeepStrictEqual(webhook.bodies[1], {
    attachments: [{ title: "PAGE: NoWorkers", title_link: RUNBOOK }],
  });
  assert.match(JSON.stringify(webhook.bodies[1]), /a hears nobody/);
}

async function refuses(program: string): Promise<void> {
  const secret = "hunter2";
  const rows: { [name: string]: string }[] = [
    { ALERT_WEBHOOK_URL: `hooks.example.com/${secret}` },
    { ALERT_WEBHOOK_URL: `https://x/${secret}\nroute: {}` },
    { ALERT_EMAIL_URL: `smtp://a:${secret}@mail.example.org?to=a&from=b` },
    { ALERT_EMAIL_URL: `smtp://a:${secret}@mail.example.org:587?to=a` },
    { ALERT_EMAIL_URL: `ops@example.org ${secret}` },
  ];
  for (const row of rows) {
    await using alertmanager = await start(program, row);
    const { code } = await alertmanager.manager.exited;
    assert.equal(code, 78);
    const [name = ""] = Object.keys(row);
    const output = alertmanager.manager.output();
    assert.ok(output.startsWith(`${name}: expected `), output);
    assert.ok(!output.includes(secret));
  }
}

const program = await findProgram();
if (program !== undefined) {
  Deno.test(
    "an alert arrives by webhook and mail, also while the webhook hangs",
    () => arrives(program),
  );
  Deno.test(
    "where alerts are sent is checked, and mistakes show no secret",
    () => refuses(program),
  );
} else leaveOut("where alerts are sent", "prometheus-alertmanager");
