import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { createOidcClient } from "./oidc.ts";

export type TestProvider = ReturnType<typeof startProvider>;

const CLIENT_ID = "gateway-console";

/** An OpenID Connect provider on 127.0.0.1 whose answers a test sets. */
export function startProvider() {
  const keys = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const others = generateKeyPairSync("rsa", { modulusLength: 2048 });
  let nonce = "";
  let challenge = "";
  const token = (claims: Record<string, unknown>) => {
    const body = [{ alg: "RS256", kid: "k1", typ: "JWT" }, claims]
      .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
      .join(".");
    const { privateKey } = provider.forges ? others : keys;
    const signature = sign("sha256", Buffer.from(body), privateKey);
    return `${body}.${signature.toString("base64url")}`;
  };
  const exchange = async (request: Request): Promise<Response> => {
    const form = new URLSearchParams(await request.text());
    const digest = createHash("sha256").update(form.get("code_verifier") ?? "")
      .digest("base64url");
    provider.verifierFitted = digest === challenge;
    const nowS = Math.floor(Date.now() / 1_000);
    return Response.json({
      access_token: "not used",
      token_type: "bearer",
      id_token: token({
        ...{ iss: provider.issuer, aud: CLIENT_ID, sub: "subject-1", nonce },
        ...{ iat: nowS, exp: nowS + 300 },
        ...{ email: "ada@example.org", email_verified: true },
        ...provider.claims,
      }),
    });
  };
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    (request): Response | Promise<Response> => {
      if (provider.isBroken) return Response.json({});
      const { pathname } = new URL(request.url);
      if (pathname === "/.well-known/openid-configuration") {
        return Response.json({
          issuer: provider.issuer,
          authorization_endpoint: `${provider.issuer}/authorize`,
          token_endpoint: `${provider.issuer}/token`,
          jwks_uri: `${provider.issuer}/jwks`,
          response_types_supported: ["code"],
          subject_types_supported: ["public"],
          id_token_signing_alg_values_supported: ["RS256"],
        });
      }
      if (pathname === "/jwks") {
        const jwk = keys.publicKey.export({ format: "jwk" });
        return Response.json({ keys: [{ ...jwk, kid: "k1", use: "sig" }] });
      }
      if (pathname === "/token") return exchange(request);
      return new Response("Not found", { status: 404 });
    },
  );
  const issuer = `http://127.0.0.1:${server.addr.port}`;
  const claims: Record<string, unknown> = {};
  const provider = {
    issuer,
    /** The console's client of it. */
    client: createOidcClient({
      issuer: new URL(issuer),
      clientId: CLIENT_ID,
      clientSecret: "client secret for tests",
      allowed: ["ada@example.org", "@corp.test"],
      name: "Example",
    }),
    /** Claims that override those of the next identity token. */
    claims,
    /** Whether the code verifier matched the challenge in the last exchange. */
    verifierFitted: false,
    /** Signs with another key than the provider's. */
    forges: false,
    /** Answers every request with an empty object. */
    isBroken: false,
    /** Takes the URL that the browser is sent to and returns the one that it comes back to. */
    authorize: (url: URL): URL => {
      nonce = url.searchParams.get("nonce") ?? "";
      challenge = url.searchParams.get("code_challenge") ?? "";
      const back = new URL(url.searchParams.get("redirect_uri") ?? "");
      back.searchParams.set("code", "one-time-code");
      back.searchParams.set("state", url.searchParams.get("state") ?? "");
      return back;
    },
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
  return provider;
}
