/**
 * A real OpenID Connect provider, with one client and any person who types an address:
 * `node openid_provider.mjs oidc-provider PORT REDIRECT_URI CLIENT_SECRET`.
 */
import process from "node:process";

const [packageName, port, redirectUri, clientSecret] = process.argv.slice(2);
// Only Node finds it, beside this file.
const { Provider } = await import(packageName);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "gateway-console",
    client_secret: clientSecret,
    redirect_uris: [redirectUri],
    require_auth_time: true,
  }],
  claims: {
    openid: ["sub"],
    email: ["email", "email_verified"],
    groups: ["groups"],
  },
  scopes: ["openid", "email", "groups"],
  // Claims of the scope are in the identity token, too, as other providers do it.
  conformIdTokenClaims: false,
  cookies: { keys: ["a key for tests"] },
  findAccount: (_, address) => ({
    accountId: address,
    claims: () => ({
      sub: address,
      email: address,
      email_verified: !address.startsWith("unverified"),
      groups: groupsOf(address),
    }),
  }),
});
/** `ada+search+leads@example.org` is in the groups `search` and `leads`. */
function groupsOf(address) {
  return address.split("@")[0].split("+").slice(1);
}

provider.listen(Number(port), "127.0.0.1", () => {
  process.stdout.write("listening\n");
});
