/** By protocol of a URL. */
const DEFAULT_PORTS: ReadonlyMap<string, number> = new Map([
  ["http:", 80],
  ["https:", 443],
]);

/**
 * The URL of chat completions under a base URL: `http://gpu:8000/v1` becomes
 * `http://gpu:8000/v1/chat/completions`; a query string is kept. Throws an Error
 * that does not repeat the URL, since it may hold a password.
 */
export function endpointOf(baseUrl: string): URL {
  if (!URL.canParse(baseUrl)) {
    throw new Error("Base URL of a backend is not a URL");
  }
  const url = new URL(baseUrl);
  if (!DEFAULT_PORTS.has(url.protocol)) {
    throw new Error("Base URL of a backend is neither http nor https");
  }
  if (url.username !== "" || url.password !== "") {
    throw new Error(
      "Base URL of a backend holds a credential: use its API key variable",
    );
  }
  url.hash = "";
  url.pathname = `${url.pathname.replace(/\/+$/, "")}/chat/completions`;
  return url;
}

/** The port to connect to. */
export function portOf(url: URL): number {
  return url.port === ""
    ? DEFAULT_PORTS.get(url.protocol) ?? 443
    : Number(url.port);
}

/** The name or address to connect to: an IPv6 address without its brackets. */
export function hostnameOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, "$1");
}
