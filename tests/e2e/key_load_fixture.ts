/** Requests with keys that are changed meanwhile, and what each may be answered. */
import type { Cluster } from "../support/cluster.ts";
import { askCluster } from "../support/cluster_keys.ts";
import type {
  Answer,
  Form,
  TestClient,
} from "../../services/key-admin/console_fixture.ts";
import {
  changeKey,
  type ConsoleKey,
  createKey,
} from "../support/console_client.ts";

/** A key, and what requests with it were to be answered since it was made. */
export interface WatchedKey extends ConsoleKey {
  /** Statuses that are right, by phase: one while a state holds, two during a change. The last phase is now. */
  phases: number[][];
}

/** What answers a key in a state gets. */
export const STATUS_OF = { disable: 403, enable: 200, delete: 401 } as const;

/** A new key, which is enabled. */
export async function createWatched(browser: TestClient, description: string) {
  const key = await createKey(browser, description);
  return { ...key, phases: [[STATUS_OF.enable]] };
}

/** Changes a key and notes the phases: until it is acknowledged, both answers are right. */
export async function changeWatched(
  browser: TestClient,
  key: WatchedKey,
  what: keyof typeof STATUS_OF,
  more: Form = {},
): Promise<Answer> {
  const before = key.phases.at(-1) ?? [];
  key.phases.push([...before, STATUS_OF[what]]);
  const sure = what === "delete" ? { sure: "on" } : {};
  const page = await changeKey(browser, key, what, { ...sure, ...more });
  key.phases.push([STATUS_OF[what]]);
  return page;
}

/** The status of one whole request, its body read so that the connection serves the next. */
async function statusOf(
  cluster: Cluster,
  { value }: ConsoleKey,
  edge: number,
  question: "models" | "chat" = "chat",
): Promise<number> {
  const response = question === "chat"
    ? await askCluster(cluster, value, edge)
    : await fetch(`${cluster.baseUrl(edge)}/models`, {
      headers: { authorization: `Bearer ${value}` },
    });
  await response.arrayBuffer();
  return response.status;
}

/** What was answered until now. */
export interface KeyReport {
  /** Answers by status. */
  counts: Map<number, number>;
  /** Answers that were not right in any phase the request had seen. */
  wrong: string[];
}

/** Asks once and judges the answer. */
export async function askWatched(
  cluster: Cluster,
  { counts, wrong }: KeyReport,
  { key, edge, question = "chat" }: {
    key: WatchedKey;
    edge: number;
    question?: "models" | "chat";
  },
): Promise<void> {
  const since = key.phases.length - 1;
  const status = await statusOf(cluster, key, edge, question);
  counts.set(status, (counts.get(status) ?? 0) + 1);
  const right = key.phases.slice(since).flat();
  if (right.includes(status)) return;
  wrong.push(`${question} on edge ${edge}: ${status}, not ${right}`);
}

/** Keeps every edge busy with the keys in turn, chat and lists alternating, until it is told to stop. */
export function startLoad(cluster: Cluster, keys: readonly WatchedKey[]) {
  const report: KeyReport = { counts: new Map(), wrong: [] };
  let isOver = false;
  const loops = cluster.state.edge_urls.map(async (_, edge) => {
    for (let n = edge; !isOver; n++) {
      const key = keys[n % keys.length];
      if (key === undefined) throw new Error("A load needs keys");
      const isChat = Math.floor(n / keys.length) % 2 === 0;
      const question = isChat ? "chat" : "models";
      await askWatched(cluster, report, { key, edge, question });
    }
  });
  const done = Promise.all(loops);
  return {
    report,
    stop: async () => {
      isOver = true;
      await done;
      return report;
    },
  };
}
