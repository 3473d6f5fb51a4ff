/** Every NATS subject. They contain only ids that the system generated: base62, without dots and wildcards. */

const PREFIX = "gw.v1";

/** The services that run jobs. Each has subjects of its own, so that a bus user of one cannot read the jobs of another. */
export const WORKER_FAMILIES = ["chat", "media"] as const;
export type WorkerFamily = typeof WORKER_FAMILIES[number];

/** A job for one worker. Reply subject: the edge's stream subject. */
export const jobSubject = (family: WorkerFamily, workerId: string): string =>
  `${PREFIX}.${family}.job.${workerId}`;

/** A job for any worker of a family, which share a queue group; used when the edge knows none. */
export const anyWorkerSubject = (family: WorkerFamily): string =>
  `${PREFIX}.${family}.any`;

/** Pieces of one large body; the reply is the acknowledgement. */
export const bodySubject = (
  family: WorkerFamily,
  workerId: string,
  requestId: string,
): string => `${PREFIX}.${family}.body.${workerId}.${requestId}`;

export const bodyWildcard = (family: WorkerFamily, workerId: string): string =>
  `${PREFIX}.${family}.body.${workerId}.*`;

/** Control records and probes for a worker, see `control.ts`. */
export const controlSubject = (
  family: WorkerFamily,
  workerId: string,
): string => `${PREFIX}.${family}.ctl.${workerId}`;

export const edgeFramesSubject = (edgeId: string): string =>
  `${PREFIX}.edge.${edgeId}.frames`;

/** The reply subject of a job: names the request, and gets the server's notice that the job had no subscriber. */
export const edgeStreamSubject = (
  edgeId: string,
  requestId: string,
  attempt: number,
): string => `${PREFIX}.edge.${edgeId}.s.${requestId}.${attempt}`;

const EDGE_STREAM =
  /^gw\.v1\.edge\.([0-9A-Za-z]+)\.s\.([0-9a-f]{32})\.([0-9]{1,10})$/;

/** The ids in a stream subject, or null for any other text. */
export function parseEdgeStreamSubject(
  subject: string,
): { edgeId: string; requestId: string; attempt: number } | null {
  const [, edgeId, requestId, attempt] = EDGE_STREAM.exec(subject) ?? [];
  if (edgeId === undefined || requestId === undefined) return null;
  return { edgeId, requestId, attempt: Number(attempt) };
}

/** The subscription of an edge to the notices about its jobs. */
export const edgeStreamWildcard = (edgeId: string): string =>
  `${PREFIX}.edge.${edgeId}.s.*.*`;

export const workerBeatSubject = (workerId: string): string =>
  `${PREFIX}.beat.worker.${workerId}`;
export const workerBeatWildcard = `${PREFIX}.beat.worker.*`;
export const edgeBeatSubject = (edgeId: string): string =>
  `${PREFIX}.beat.edge.${edgeId}`;
export const edgeBeatWildcard = `${PREFIX}.beat.edge.*`;

/** Published by key-admin to all edges when the running requests of a key must stop. */
export const keyChangedSubject = `${PREFIX}.key.changed`;

/** The last token of a subject: the worker id of a beat. */
export function lastToken(subject: string): string {
  return subject.slice(subject.lastIndexOf(".") + 1);
}
