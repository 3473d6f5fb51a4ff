/**
 * The NATS subjects of the gateway: who publishes what, and who receives it.
 */

/**
 * The services that run jobs. Each has subjects of its own, so that a bus user of one
 * cannot read the jobs of another.
 */
export const WORKER_FAMILIES = ["chat", "media"] as const;

/** One of {@link WORKER_FAMILIES}. */
export type WorkerFamily = typeof WORKER_FAMILIES[number];

/**
 * Every NATS subject. They contain only ids that the system generated: base62, without
 * dots and wildcards.
 */
export const subjects = {
  /** A job for one worker. Reply subject: the edge's `edgeStream`. */
  job: (family: WorkerFamily, workerId: string) =>
    `gw.v1.${family}.job.${workerId}`,
  /**
   * A job for any worker of a family, which share a queue group; used when the edge
   * knows none.
   */
  anyWorker: (family: WorkerFamily) => `gw.v1.${family}.any`,
  /** Pieces of one large body; the reply is the acknowledgement. */
  body: (family: WorkerFamily, workerId: string, requestId: string) =>
    `gw.v1.${family}.body.${workerId}.${requestId}`,
  /** All `body` subjects of one worker. */
  bodies: (family: WorkerFamily, workerId: string) =>
    `gw.v1.${family}.body.${workerId}.*`,
  /** Control records and probes for a worker, see `stream/control.ts`. */
  control: (family: WorkerFamily, workerId: string) =>
    `gw.v1.${family}.ctl.${workerId}`,
  /** Frames of all answers for one edge, see `encodeFrames()`. */
  edgeFrames: (edgeId: string) => `gw.v1.edge.${edgeId}.frames`,
  /**
   * The reply subject of a job: names the request, and gets the server's notice that
   * the job had no subscriber.
   */
  edgeStream: (edgeId: string, requestId: string, offerNumber: number) =>
    `gw.v1.edge.${edgeId}.s.${requestId}.${offerNumber}`,
  /** All `edgeStream` subjects of one edge. */
  edgeStreams: (edgeId: string) => `gw.v1.edge.${edgeId}.s.*.*`,
  /** Beats of one worker, see `WorkerBeat`. */
  workerBeat: (workerId: string) => `gw.v1.beat.worker.${workerId}`,
  /** Beats of all workers. */
  workerBeats: "gw.v1.beat.worker.*",
  /** What one worker tells of its backends, see `backends/report.ts`. */
  backends: (workerId: string) => `gw.v1.backends.worker.${workerId}`,
  /** What all workers tell of their backends. */
  allBackends: "gw.v1.backends.worker.*",
  /** A wish of key-admin that all workers tell of their backends now. */
  backendsWanted: "gw.v1.backends.wanted",
  /**
   * What one worker uses of model servers with limits, for the others: see
   * `server_limits/report.ts`.
   */
  use: (workerId: string) => `gw.v1.use.worker.${workerId}`,
  /** What all workers use of such servers. */
  allUse: "gw.v1.use.worker.*",
  /** What operators have changed beside the list of models, as key-admin tells it. */
  overrides: "gw.v1.overrides",
  /** A question of a worker for them; the reply has the same form. */
  overridesWanted: "gw.v1.overrides.wanted",
  /**
   * A question of key-admin: what runs now, or that a request must stop. See
   * `running.ts`.
   */
  runningWanted: "gw.v1.running.wanted",
  /** The answers of one edge or worker to it. */
  running: (instanceId: string) => `gw.v1.running.of.${instanceId}`,
  /** All answers to it. */
  allRunning: "gw.v1.running.of.*",
  /** What workers tell an edge of slots that they keep, see `waiting.ts`. */
  edgeTurns: (edgeId: string) => `gw.v1.edge.${edgeId}.turns`,
  /** Edges that do not need the slot that a worker keeps for them. */
  turnReturns: (family: WorkerFamily, workerId: string) =>
    `gw.v1.${family}.turns.${workerId}`,
  /** Beats of one edge, with what waits there, see `waiting.ts`. */
  edgeBeat: (edgeId: string) => `gw.v1.beat.edge.${edgeId}`,
  /** Beats of all edges. */
  edgeBeats: "gw.v1.beat.edge.*",
  /**
   * Notices from key-admin to all edges that the running requests of a key must stop.
   */
  keyChanged: "gw.v1.key.changed",
  /** Entries of one kept answer, which JetStream keeps: see `kept/log_nats.ts`. */
  kept: (requestId: string) => `gw.v1.kept.${requestId}`,
  /** Entries of all kept answers. */
  allKept: "gw.v1.kept.*",
  /** An order of an edge to all to stop a request whose answer is kept. */
  stopKept: "gw.v1.stop.kept",
} as const;

/** The group that answers {@link subjects.overridesWanted}: one member does. */
export const OVERRIDES_QUEUE = "overrides";

const EDGE_STREAM =
  /^gw\.v1\.edge\.([0-9A-Za-z]+)\.s\.([0-9a-f]{32})\.([0-9]{1,10})$/;

/** What an `edgeStream` subject names. */
export interface EdgeStream {
  edgeId: string;
  /** 32 hex characters. */
  requestId: string;
  offerNumber: number;
}

/** Reads an `edgeStream` subject; null for any other text. */
export function parseEdgeStream(subject: string): EdgeStream | null {
  const [, edgeId, requestId, offerNumber] = EDGE_STREAM.exec(subject) ?? [];
  if (edgeId === undefined || requestId === undefined) return null;
  return { edgeId, requestId, offerNumber: Number(offerNumber) };
}

/** Returns the last token of a subject: of a beat, the id of its sender. */
export function lastToken(subject: string): string {
  return subject.slice(subject.lastIndexOf(".") + 1);
}
