/**
 * Keeps a map within bounds: called after an entry was set, drops the one that was
 * set first when there are more than `sizeMax`. Who moves an entry to the end
 * whenever it is used drops the longest unused.
 */
export function dropOldest(map: Map<string, unknown>, sizeMax: number): void {
  if (map.size <= sizeMax) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}
