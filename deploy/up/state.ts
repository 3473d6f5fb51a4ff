/** `.run/up.json`: everything needed to call the gateway and to inspect it. */

/** The processes of a running gateway, by service. */
export interface ProcessState {
  /** None for a server that was given by its URL. */
  pids: Record<string, number[]>;
  /** Base URLs of health, readiness and metrics. */
  ops_urls: Record<string, string[]>;
}

/** The contents of the file. */
export interface UpState extends ProcessState {
  /** The process of the launcher: SIGTERM to it stops everything. */
  pid: number;
  /** The URL of the first edge, without a path: `http://127.0.0.1:8080`. */
  edge_url: string;
  edge_urls: string[];
  console_url: string;
  /** One-time link that creates the first owner; null when there is one. */
  setup_url: string | null;
  /** Null without a first key that works. */
  api_key: string | null;
  nats_url: string;
  redis_url: string;
  /** Ids of the models that it serves; absent if only the servers know all. */
  models?: readonly string[] | undefined;
  /** The file of models; null without one. */
  models_file: string | null;
  /** The simulator of models; null if there are others. */
  simulator_url: string | null;
}
