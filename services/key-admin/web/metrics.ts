/** Counters of the console in Prometheus' text format. */
export interface Metrics {
  count(status: number): void;
  text(): string;
}

/** Counters that begin at nothing. */
export function createMetrics(): Metrics {
  const byClass = new Map<string, number>(
    ["2xx", "3xx", "4xx", "5xx"].map((name) => [name, 0]),
  );
  return {
    count: (status) => {
      const name = `${Math.floor(status / 100)}xx`;
      byClass.set(name, (byClass.get(name) ?? 0) + 1);
    },
    text: () =>
      [
        "# HELP key_admin_responses_total Answers of the console by class of status.",
        "# TYPE key_admin_responses_total counter",
        ...[...byClass].map(([name, count]) =>
          `key_admin_responses_total{status="${name}"} ${count}`
        ),
        "",
      ].join("\n"),
  };
}
