/** Circles among files or folders that import each other. */

/** What each file or folder imports, by path. */
export type Imports = ReadonlyMap<string, ReadonlySet<string>>;

/**
 * Returns the shortest circle through each file or folder that is in one, as
 * `a -> b -> a`, and each circle once.
 */
export function circlesOf(imports: Imports): string[] {
  const circles = new Map<string, string>();
  for (const start of imports.keys()) {
    const circle = shortestWay(imports, start);
    if (circle === null) continue;
    const members = circle.toSorted().join();
    if (!circles.has(members)) {
      circles.set(members, [...circle, start].join(" -> "));
    }
  }
  return [...circles.values()];
}

/** The shortest way from `start` back to it, without its end; null: there is none. */
function shortestWay(imports: Imports, start: string): string[] | null {
  const ways = [[start]];
  const visited = new Set<string>();
  for (const way of ways) {
    for (const next of imports.get(way.at(-1) ?? "") ?? []) {
      if (next === start) return way;
      if (visited.has(next)) continue;
      visited.add(next);
      ways.push([...way, next]);
    }
  }
  return null;
}
