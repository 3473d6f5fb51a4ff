// Promise: Caddy, Alertmanager and Prometheus in the versions of compose do what tests
// of `deploy` promise of Debian's; and what a running gateway shows becomes an alert
// that reaches a webhook. Run by `deno task test:foreign`.
import assert from "node:assert/strict";
import { findFreePorts } from "../../deploy/up/ports.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import {
  CACHE,
  installOnce,
  makeTempDir,
  print,
  runProcess,
  startProcess,
} from "../support/process.ts";
import { until } from "../support/wait_for.ts";

const CADDY = "2.11.9";
const ALERTMANAGER = "0.35.0";
const PROMETHEUS = "3.16.0";
/** The images of these versions, as compose and the proxy's Dockerfile name them. */
const IMAGES = [
  `caddy:${CADDY}`,
  `prom/alertmanager:v${ALERTMANAGER}`,
  `prom/prometheus:v${PROMETHEUS}`,
];
const REPOSITORY = new URL("../../", import.meta.url);
const bin = `${CACHE}/chat-gateway-foreign/compose-programs`;
const PATH = `${bin}:${Deno.env.get("PATH")}`;

/** Prometheus 3.16 is the module 0.316. Of its ways to find targets, compose needs one. */
const MODULE = `v0.${PROMETHEUS.replace(".", "")}`;
/** What is served of Alertmanager's pages is built apart, and nothing is asked of it. */
const PAGES = "source/ui/app/dist";
const INSTALL = {
  caddy: `
GOBIN=$PWD GOWORK=off go install github.com/caddyserver/caddy/v2/cmd/caddy@v${CADDY}
`,
  alertmanager: `
found=$(go mod download -json github.com/prometheus/alertmanager@v${ALERTMANAGER})
folder=$(printf %s "$found" | sed -n 's/.*"Dir": "\\(.*\\)".*/\\1/p')
rm -rf source && cp -r "$folder" source && chmod -R u+w source
mkdir -p ${PAGES}/elm ${PAGES}/mantine
touch ${PAGES}/elm/index.html ${PAGES}/mantine/index.html
(cd source && GOWORK=off go build -o ../alertmanager ./cmd/alertmanager)
rm -rf source
`,
  prometheus: `
for program in prometheus promtool; do
  GOBIN=$PWD GOWORK=off go install -tags remove_all_sd,enable_dns_sd \
    github.com/prometheus/prometheus/cmd/$program@${MODULE}
done
`,
};

const CONSOLE = "https://console.test";
/** Two looks at targets, a minute that `ServiceDown` waits, and then some. */
const ALERT_MS = 180_000;
const START_MS = 60_000;

/** Runs tests of Debian's programs with those that were built. */
const runTests = (...files: string[]) =>
  runProcess(Deno.execPath(), ["test", "--allow-all", "--no-check", ...files], {
    cwd: REPOSITORY,
    env: { PATH },
  });

/** Keeps the bodies that it gets. */
function startWebhook() {
  const bodies: string[] = [];
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    async (request) => {
      bodies.push(await request.text());
      return new Response("ok");
    },
  );
  const { port } = server.addr;
  return {
    url: `http://127.0.0.1:${port}/`,
    bodies,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

/** The configuration of compose, with addresses in place of names in DNS. */
async function configFor(
  targets: Readonly<Record<string, readonly string[]>>,
  alertmanagerPort: number,
): Promise<string> {
  const file = new URL("deploy/observability/prometheus.yml", REPOSITORY);
  return (await Deno.readTextFile(file))
    .replace(
      /dns_sd_configs:\s+- names: \[alertmanager\]\s+type: A\s+port: 9093/,
      `static_configs: [{ targets: ["127.0.0.1:${alertmanagerPort}"] }]`,
    )
    .replaceAll(
      /dns_sd_configs:\s+- names: \[(.+)\]\s+type: A\s+port: 9090\s+refresh_interval: 5s/g,
      (_, service: string) =>
        `static_configs: [{ targets: ${
          JSON.stringify(targets[service] ?? [])
        } }]`,
    );
}

/** An answer of Prometheus. */
async function ask(url: string): Promise<{ data: PrometheusData } | null> {
  const response = await fetch(url).catch(() => null);
  if (response?.ok) return await response.json();
  await response?.body?.cancel();
  return null;
}

interface PrometheusData {
  result?: { metric: Record<string, string>; value: [number, string] }[];
  groups?: { rules: { name: string; health: string; lastError?: string }[] }[];
}

/** Waits until all targets were asked, and returns those that do not answer. */
async function targetsDown(api: string, count: number): Promise<string[]> {
  const results = await until(async () => {
    const { data } = await ask(`${api}/query?query=up`) ?? {};
    return data?.result?.length === count && data.result;
  }, START_MS);
  return results.filter(({ value: [, up] }) => up !== "1")
    .map(({ metric }) => metric.instance ?? "");
}

/** Fails unless all rules of alerts could be judged. */
async function checkRules(api: string): Promise<void> {
  const rules = await until(async () => {
    const { data } = await ask(`${api}/rules`) ?? {};
    const found = data?.groups?.flatMap(({ rules }) => rules) ?? [];
    return found.every(({ health }) => health !== "unknown") && found;
  }, START_MS);
  assert.ok(rules.length > 20);
  assert.deepEqual(rules.filter(({ health }) => health !== "ok"), []);
}

/** The addresses of the operations ports by service, one of which nobody has. */
function targetsOf({ state }: LaunchedGateway, dead: string) {
  const targets = Object.fromEntries(
    Object.entries(state.ops_urls).map(([service, urls]) =>
      [service, urls.map((url) => new URL(url).host)] as const
    ),
  );
  targets["chat-worker"]?.push(dead);
  return targets;
}

async function alertsArrive(): Promise<void> {
  await using gateway = await startGateway("launched", {});
  await using webhook = startWebhook();
  await using folder = await makeTempDir();
  const { path } = folder;
  const [port = 0, managerPort = 0, deadPort = 0] = findFreePorts(3);
  const dead = `127.0.0.1:${deadPort}`;
  const targets = targetsOf(gateway, dead);
  const observability = new URL("deploy/observability/", REPOSITORY).pathname;
  await Deno.copyFile(`${observability}alerts.yml`, `${path}/alerts.yml`);
  await Deno.writeTextFile(
    `${path}/prometheus.yml`,
    await configFor(targets, managerPort),
  );
  await using _manager = startProcess({
    command: "/bin/sh",
    args: [
      `${observability}alertmanager.sh`,
      `--storage.path=${path}/alertmanager`,
      `--web.listen-address=127.0.0.1:${managerPort}`,
      "--cluster.listen-address=",
    ],
    env: {
      PATH,
      ALERTMANAGER_DIR: path,
      ALERT_GROUP_WAIT: "1s",
      ALERT_WEBHOOK_URL: webhook.url,
    },
  });
  await using _prometheus = startProcess({
    command: `${bin}/prometheus`,
    args: [
      `--config.file=${path}/prometheus.yml`,
      `--storage.tsdb.path=${path}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    env: { PUBLIC_URL: CONSOLE },
  });
  const api = `http://127.0.0.1:${port}/api/v1`;
  const { length: count } = Object.values(targets).flat();
  assert.deepEqual(await targetsDown(api, count), [dead]);
  await checkRules(api);
  const body = await until(
    () => webhook.bodies.find((text) => text.includes("ServiceDown")) ?? false,
    ALERT_MS,
  );
  assert.partialDeepStrictEqual(JSON.parse(body), {
    attachments: [{
      title: "PAGE: ServiceDown",
      title_link: `${CONSOLE}/runbooks#servicedown`,
    }],
  });
  assert.ok(body.includes(dead), body);
}

/** Builds a program. Says why and returns false if it cannot be had. */
async function canHave(program: keyof typeof INSTALL): Promise<boolean> {
  try {
    await installOnce(program, INSTALL[program], { cwd: bin });
    return true;
  } catch (error) {
    const reason = String(error).trim().split("\n").at(-1);
    print(`Left out: ${program} of compose: ${reason}`);
    return false;
  }
}

Deno.test("compose names the versions that are built here", async () => {
  const files = await Promise.all(
    ["compose.yaml", "deploy/proxy/Dockerfile"].map((path) =>
      Deno.readTextFile(new URL(path, REPOSITORY))
    ),
  );
  for (const image of IMAGES) assert.ok(files.join().includes(image), image);
});

if (await canHave("caddy")) {
  Deno.test(`the front proxy, Caddy ${CADDY}`, async () => {
    await runTests("tests/deploy/up_as_installed_test.ts");
  });
}

const hasAlertmanager = await canHave("alertmanager");
if (hasAlertmanager) {
  Deno.test(`where alerts are sent, Alertmanager ${ALERTMANAGER}`, async () => {
    await runTests("tests/observability/alertmanager_long_test.ts");
  });
}

if (await canHave("prometheus")) {
  Deno.test(`the alerts, promtool ${PROMETHEUS}`, async () => {
    await runTests("tests/observability/dashboard_and_alerts_test.ts");
  });

  if (hasAlertmanager) {
    Deno.test(
      `an alert of a running gateway, Prometheus ${PROMETHEUS}`,
      alertsArrive,
    );
  }
}
