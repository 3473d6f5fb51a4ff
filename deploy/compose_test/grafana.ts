/** Grafana's HTTP API, as far as the test of the profiles needs it. */

const ANSWER_MS = 10_000;
const DATA_SOURCE = "prometheus";
const DASHBOARD = "gateway";
/** The time range that a panel shows at first. */
const RANGE = { from: "now-15m", to: "now" };
const MAX_DATA_POINTS = 200;
const INTERVAL_MS = 10_000;

/** A panel in the JSON of a dashboard. */
export interface Panel {
  type: string;
  title: string;
  targets?: { refId: string; expr: string }[];
}

interface Target {
  health: string;
}

/** The points of a response: each frame is a list of columns, the first of them times. */
interface QueryAnswer {
  results: Record<
    string,
    { error?: string; frames?: { data: { values: unknown[][] } }[] }
  >;
}

/** Grafana's API as one user. Every method throws when there is no response in time. */
export class Grafana {
  readonly #url: string;
  readonly #authorization: string;

  constructor(url: string, password: string) {
    this.#url = url;
    this.#authorization = `Basic ${btoa(`admin:${password}`)}`;
  }

  async status(path: string): Promise<number> {
    const response = await this.#fetch(path);
    await response.body?.cancel();
    return response.status;
  }

  async version(): Promise<string> {
    const { version }: { version: string } = await this.#json("/api/health");
    return version;
  }

  dataSourceHealth(): Promise<{ status: string }> {
    return this.#json(`/api/datasources/uid/${DATA_SOURCE}/health`);
  }

  /** The targets that Prometheus scrapes. */
  async targets(): Promise<Target[]> {
    const { data }: { data: { activeTargets: Target[] } } = await this.#json(
      `/api/datasources/proxy/uid/${DATA_SOURCE}/api/v1/targets?state=active`,
    );
    return data.activeTargets;
  }

  async dashboard(): Promise<{ panels: Panel[] }> {
    const answer: { dashboard: { panels: Panel[] } } = await this.#json(
      `/api/dashboards/uid/${DASHBOARD}`,
    );
    return answer.dashboard;
  }

  /** Runs a panel's queries as its page does, and counts the points. Throws on a query that fails. */
  async points(panel: Panel): Promise<number> {
    const queries = (panel.targets ?? []).map(({ refId, expr }) => ({
      refId,
      expr,
      datasource: { type: DATA_SOURCE, uid: DATA_SOURCE },
      maxDataPoints: MAX_DATA_POINTS,
      intervalMs: INTERVAL_MS,
    }));
    const { results }: QueryAnswer = await this.#json("/api/ds/query", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...RANGE, queries }),
    });
    let points = 0;
    for (const { error, frames = [] } of Object.values(results)) {
      if (error !== undefined) throw new Error(`${panel.title}: ${error}`);
      for (const { data } of frames) points += data.values[0]?.length ?? 0;
    }
    return points;
  }

  async #json<T>(path: string, init: RequestInit = {}): Promise<T> {
    const response = await this.#fetch(path, init);
    const text = await response.text();
    if (response.ok) return JSON.parse(text);
    throw new Error(`${path}: ${response.status} ${text}`);
  }

  #fetch(path: string, init: RequestInit = {}): Promise<Response> {
    return fetch(`${this.#url}${path}`, {
      ...init,
      headers: { ...init.headers, authorization: this.#authorization },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
  }
}
