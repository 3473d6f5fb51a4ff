/**
 * The services that run jobs. Each has subjects of its own, so that a bus user of one
 * cannot read the jobs of another.
 */
export const WORKER_FAMILIES = ["chat", "media"] as const;
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
  bodies: (family: WorkerFamily, workerId: string) =>
    `gw.v1.${family}.body.${workerId}.*`,
  /** Control records and probes for a worker, see `control.ts`. */
  control: (family: WorkerFamily, workerId: string) =>
    `gw.v1.${family}.ctl.${workerId}`,
  edgeFrames: (edgeId: string) => `gw.v1.edge.${edgeId}.frames`,
  /**
   * The reply subject of a job: names the request, and gets the server's notice that
   * the job had no subscriber.
   */
  edgeStream: (edgeId: string, requestId: string, attempt: number) =>
    `gw.v1.edge.${edgeId}.s.${requestId}.${attempt}`,
  edgeStreams: (edgeId: string) => `gw.v1.edge.${edgeId}.s.*.*`,
  workerBeat: (workerId: string) => `gw.v1.beat.worker.${workerId}`,
  workerBeats: "gw.v1.beat.worker.*",
  edgeBeat: (edgeId: string) => `gw.v1.beat.edge.${edgeId}`,
  edgeBeats: "gw.v1.beat.edge.*",
  /** From key-admin to all edges, when the running requests of a key must stop. */
  keyChanged: "gw.v1.key.changed",
} as const;

const EDGE_STREAM =
  /^gw\.v1\.edge\.([0-9A-Za-z]+)\.s\.([0-9a-f]{32})\.([0-9]{1,10})$/;

/** The ids in an `edgeStream` subject, or null for any other text. */
export function parseEdgeStream(subject: string) {
  const [, edgeId, requestId, attempt] = EDGE_STREAM.exec(subject) ?? [];
  if (edgeId === undefined || requestId === undefined) return null;
  return { edgeId, requestId, attempt: Number(attempt) };
}

/** The last token of a subject: the worker id of a beat. */
export function lastToken(subject: string): string {
  return subject.slice(subject.lastIndexOf(".") + 1);
}
