/**
 * The address of the client: the peer's own, unless the peer is a proxy of the
 * operator. Then it is the last address of `X-Forwarded-For` that is none of the
 * proxies; what stands before it is whatever the client claimed (ASVS 4.1.3).
 */
export function clientIp(
  peer: string,
  forwardedFor: string | null,
  trustedProxies: readonly string[],
): string {
  if (!trustedProxies.includes(peer) || forwardedFor === null) return peer;
  const hops = forwardedFor.split(",").map((hop) => hop.trim()).reverse();
  const client = hops.find((hop) => !trustedProxies.includes(hop));
  return client !== undefined && /^[0-9A-Fa-f.:]{2,45}$/.test(client)
    ? client
    : peer;
}
