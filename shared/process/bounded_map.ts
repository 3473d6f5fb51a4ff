/** Sets an entry and makes it the newest; drops the oldest beyond `sizeMax`. */
export function remember<Value>(
  map: Map<string, Value>,
  name: string,
  value: Value,
  sizeMax: number,
): void {
  map.delete(name);
  map.set(name, value);
  const [oldest] = map.keys();
  if (map.size > sizeMax && oldest !== undefined) map.delete(oldest);
}
