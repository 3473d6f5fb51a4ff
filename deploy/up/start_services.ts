import type { Cluster } from "./cluster.ts";
import { findFreePorts } from "./ports.ts";
import {
  adminProgram,
  edgeProgram,
  httpUrl,
  type ProgramContext,
  workerProgram,
} from "./service_programs.ts";
import type { Ready, ServiceName, Unit } from "./supervise.ts";

/** What is known of the services, growing while they start. */
export interface Services {
  /** Resolves when all are ready; rejects when one does not start. */
  ready: Promise<void>;
  edgeUrls(): string[];
  consoleUrl: string;
  /** One-time link for the first owner, once key-admin has made one. */
  setupUrl(): string | undefined;
  opsUrls(): { [service: string]: string[] };
}

export interface ServiceDeps {
  cluster: Cluster;
  context: ProgramContext;
  /** key-admin has made a link for the first owner. */
  onSetupUrl: (url: string) => void;
}

/** The first start of a fresh machine reads its packages from disk for the first time. */
const READY_MS = 30_000;
const OPS_HOST = "127.0.0.1";

/** Starts all services at once. */
export function startServices(deps: ServiceDeps): Services {
  const { cluster, context } = deps;
  const { options, scripts } = context;
  const [freePort = 0, freeEdgePort = 0] = findFreePorts(2, options.host);
  const consolePort = options.consolePort || freePort;
  // Chosen here, because the console shows it in its examples.
  const edgePort = options.port || freeEdgePort;
  const readies = new Map<string, Ready & { service: ServiceName }>();
  const firsts: Promise<Ready>[] = [];
  let setupUrl: string | undefined;

  const start = (
    service: ServiceName,
    index: number,
    rest: Pick<Unit, "program" | "marker">,
  ) => {
    const name = index === 0 ? service : `${service}-${index + 1}`;
    const unit: Unit = {
      name,
      service,
      kind: "service",
      readyMs: READY_MS,
      ...rest,
    };
    const supervised = cluster.start(unit, {
      onReady: (ready) => readies.set(name, { ...ready, service }),
      onEvent: ({ event, fields }) => {
        if (event !== "setup_link" || typeof fields.url !== "string") return;
        setupUrl = fields.url;
        deps.onSetupUrl(fields.url);
      },
    });
    firsts.push(supervised.firstReady);
    return name;
  };

  start("key-admin", 0, {
    program: () => adminProgram(context, consolePort, edgePort),
    marker: () => scripts.admin,
  });
  const edges = Array.from({ length: options.edges }, (_, index) => {
    const wanted = index === 0 ? edgePort : 0;
    const name = index === 0 ? "edge-auth" : `edge-auth-${index + 1}`;
    return start("edge-auth", index, {
      // Clients know the first port, so a restart must come back on it.
      program: () => edgeProgram(context, readies.get(name)?.port ?? wanted),
      marker: () => scripts.edge,
    });
  });
  for (let index = 0; index < options.workers; index++) {
    start("chat-worker", index, {
      program: () => workerProgram(context),
      marker: () => scripts.worker,
    });
  }

  return {
    ready: Promise.all(firsts).then(() => {}),
    edgeUrls: () =>
      edges.map((name) => httpUrl(options.host, readies.get(name)?.port ?? 0)),
    consoleUrl: httpUrl(options.host, consolePort),
    setupUrl: () => setupUrl,
    opsUrls() {
      const urls: { [service: string]: string[] } = {};
      for (const { service, opsPort } of readies.values()) {
        if (opsPort === 0) continue;
        (urls[service] ??= []).push(httpUrl(OPS_HOST, opsPort));
      }
      return urls;
    },
  };
}
