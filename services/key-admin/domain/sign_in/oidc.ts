import * as oidc from "openid-client";

/** An OpenID Connect provider, fixed by the operator (API7). */
export interface OidcConfig {
  issuer: URL;
  clientId: string;
  clientSecret: string;
  /** Addresses and `@domains` that may sign in, in lower case. */
  allowed: readonly string[];
  /** On the button: "Continue with …". */
  name: string;
}

/** Sign-in through the organisation's OpenID Connect provider: code flow with PKCE, state and nonce (ASVS 10.5). */
export interface OidcClient {
  /** On the button: "Continue with …". */
  name: string;
  /** Where to send the browser, and what to remember until it comes back. */
  begin(redirectUri: URL, askAgain: boolean): Promise<OidcStart>;
  /** Checks what the browser came back with. Throws when anything is not as it must be. */
  finish(returned: URL, flow: OidcFlow): Promise<OidcIdentity>;
}

/** The address of the provider's page, and what to keep until the browser comes back. */
export interface OidcStart {
  url: URL;
  flow: OidcFlow;
}

/** Kept in the store, single use, while the browser is away. */
export interface OidcFlow {
  verifier: string;
  state: string;
  nonce: string;
}

/** Issuer and subject together name a person; the address is proved by the provider and allowed by the operator. */
export interface OidcIdentity {
  issuer: string;
  subject: string;
  email: string;
}

/** The provider vouches for somebody who may not sign in here. */
export class NotAllowed extends Error {
  override name = "NotAllowed";
}

const TIMEOUT_SECONDS = 5;

/** The client of one provider. Its metadata is fetched on first use and kept. */
export function createOidcClient(config: OidcConfig): OidcClient {
  const discover = rememberedDiscovery(config);
  return {
    name: config.name,
    begin: async (redirectUri, askAgain) =>
      await begin(await discover(), redirectUri, askAgain),
    finish: async (returned, flow) =>
      checkIdentity(
        config.allowed,
        await exchange(await discover(), returned, flow),
      ),
  };
}

function rememberedDiscovery(
  { issuer, clientId, clientSecret }: OidcConfig,
): () => Promise<oidc.Configuration> {
  let discovered: Promise<oidc.Configuration> | null = null;
  const options = {
    timeout: TIMEOUT_SECONDS,
    execute: [
      // The library trusts TLS alone otherwise and leaves signatures unchecked.
      oidc.enableNonRepudiationChecks,
      ...insecureOnLoopback(issuer),
    ],
  };
  return async () => {
    discovered ??= oidc.discovery(
      issuer,
      clientId,
      clientSecret,
      undefined,
      options,
    );
    try {
      return await discovered;
    } catch (error) {
      discovered = null; // The provider may be back for the next try.
      throw error;
    }
  };
}

async function begin(
  provider: oidc.Configuration,
  redirectUri: URL,
  askAgain: boolean,
): Promise<OidcStart> {
  const flow: OidcFlow = {
    verifier: oidc.randomPKCECodeVerifier(),
    state: oidc.randomState(),
    nonce: oidc.randomNonce(),
  };
  const url = oidc.buildAuthorizationUrl(provider, {
    redirect_uri: redirectUri.href,
    scope: "openid email",
    code_challenge: await oidc.calculatePKCECodeChallenge(flow.verifier),
    code_challenge_method: "S256",
    state: flow.state,
    nonce: flow.nonce,
    ...(askAgain ? { prompt: "login", max_age: "0" } : {}),
  });
  return { url, flow };
}

/** What the provider claims of whoever came back. */
interface Claimed {
  issuer: string;
  subject: string;
  email: unknown;
  isVerified: boolean;
}

async function exchange(
  provider: oidc.Configuration,
  returned: URL,
  flow: OidcFlow,
): Promise<Claimed> {
  const tokens = await oidc.authorizationCodeGrant(provider, returned, {
    pkceCodeVerifier: flow.verifier,
    expectedState: flow.state,
    expectedNonce: flow.nonce,
    idTokenExpected: true,
  });
  const claims = tokens.claims();
  if (claims === undefined) throw new NotAllowed("No identity was given");
  return {
    issuer: claims.iss,
    subject: claims.sub,
    email: claims.email,
    isVerified: claims.email_verified === true,
  };
}

function checkIdentity(
  allowed: readonly string[],
  { issuer, subject, email, isVerified }: Claimed,
): OidcIdentity {
  if (typeof email !== "string" || !isVerified) {
    throw new NotAllowed("The provider has not proved an e-mail address");
  }
  const address = email.normalize("NFKC").toLowerCase();
  const domain = address.slice(address.lastIndexOf("@"));
  if (!allowed.includes(address) && !allowed.includes(domain)) {
    throw new NotAllowed("This address may not sign in here");
  }
  return { issuer, subject, email: address };
}

/** Without TLS only on this machine, for tests and development. */
function insecureOnLoopback(issuer: URL) {
  const isLocal = issuer.protocol === "http:" &&
    ["localhost", "127.0.0.1"].includes(issuer.hostname);
  return isLocal ? [oidc.allowInsecureRequests] : [];
}
