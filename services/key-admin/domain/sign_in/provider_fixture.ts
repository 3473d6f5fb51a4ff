/** An OpenID Connect provider whose answers tests set. */
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { OidcClient, type OidcConfig } from "./oidc.ts";

const CLIENT_ID = "gateway-console";
const KEY_ID = "k1";
const TOKEN_SECONDS = 300;
const RSA = { modulusLength: 2048 };
/**
 * The key that providers publish, and another one. They are made once, because that
 * takes long.
 */
const PUBLISHED = generateKeyPairSync("rsa", RSA);
const FORGER = generateKeyPairSync("rsa", RSA);

/** The claims of an identity token, by name. */
export type Claims = Record<string, unknown>;

/** A provider on 127.0.0.1 that signs in whoever is sent to it. */
export class TestProvider implements AsyncDisposable {
  /** The console's client of it. */
  readonly client: OidcClient;
  /** Claims that override those of the next identity token. */
  claims: Claims = {};
  /** Whether the code verifier matched the challenge in the last exchange. */
  verifierFitted = false;
  /** How many codes were exchanged. */
  exchanges = 0;
  /** Signs with another key than the one that it publishes. */
  forges = false;
  /** Answers every request with an empty object. */
  isBroken = false;

  readonly #issuer: string;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  #nonce = "";
  #challenge = "";

  constructor({ reauthentication = "checked", groups = null }: Partial<
    Pick<OidcConfig, "reauthentication" | "groups">
  > = {}) {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => this.#answer(request),
    );
    this.#issuer = `http://127.0.0.1:${this.#server.addr.port}`;
    this.client = new OidcClient({
      issuer: new URL(this.#issuer),
      clientId: CLIENT_ID,
      clientSecret: "client secret for tests",
      allowed: ["ada@example.org", "@corp.test"],
      reauthentication,
      scope: "openid email",
      groups,
      name: "Example",
    });
  }

  /**
   * Takes the URL that the browser is sent to and returns the one that it comes back
   * to.
   */
  authorize(url: URL): URL {
    this.#nonce = url.searchParams.get("nonce") ?? "";
    this.#challenge = url.searchParams.get("code_challenge") ?? "";
    const back = new URL(url.searchParams.get("redirect_uri") ?? "");
    back.searchParams.set("code", "one-time-code");
    back.searchParams.set("state", url.searchParams.get("state") ?? "");
    return back;
  }

  #answer(request: Request): Response | Promise<Response> {
    if (this.isBroken) return Response.json({});
    const { pathname } = new URL(request.url);
    if (pathname === "/token") return this.#exchange(request);
    if (pathname === "/jwks") {
      const jwk = PUBLISHED.publicKey.export({ format: "jwk" });
      return Response.json({ keys: [{ ...jwk, kid: KEY_ID, use: "sig" }] });
    }
    return Response.json({
      issuer: this.#issuer,
      authorization_endpoint: `${this.#issuer}/authorize`,
      token_endpoint: `${this.#issuer}/token`,
      jwks_uri: `${this.#issuer}/jwks`,
      response_types_supported: ["code"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: ["RS256"],
    });
  }

  async #exchange(request: Request): Promise<Response> {
    this.exchanges += 1;
    const form = new URLSearchParams(await request.text());
    const digest = createHash("sha256").update(form.get("code_verifier") ?? "")
      .digest("base64url");
    this.verifierFitted = digest === this.#challenge;
    const nowS = Math.floor(Date.now() / 1_000);
    const token = this.#signed({
      iss: this.#issuer,
      aud: CLIENT_ID,
      sub: "subject-1",
      nonce: this.#nonce,
      iat: nowS,
      exp: nowS + TOKEN_SECONDS,
      email: "ada@example.org",
      email_verified: true,
      ...this.claims,
    });
    return Response.json({
      access_token: "not used",
      token_type: "bearer",
      id_token: token,
    });
  }

  /** An identity token with these claims. */
  #signed(claims: Claims): string {
    const body = [{ alg: "RS256", kid: KEY_ID, typ: "JWT" }, claims]
      .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
      .join(".");
    const { privateKey } = this.forges ? FORGER : PUBLISHED;
    const signature = sign("sha256", Buffer.from(body), privateKey);
    return `${body}.${signature.toString("base64url")}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}
