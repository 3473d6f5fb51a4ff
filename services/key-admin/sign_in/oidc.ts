import * as oidc from "openid-client";
import type { OidcConfig } from "../config.ts";

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
  let discovered: Promise<oidc.Configuration> | null = null;
  const discover = async () => {
    discovered ??= oidc.discovery(
      config.issuer,
      config.clientId,
      config.clientSecret,
      undefined,
      {
        timeout: TIMEOUT_SECONDS,
        execute: [
          // The library trusts TLS alone otherwise and leaves signatures unchecked.
          oidc.enableNonRepudiationChecks,
          ...insecureOnLoopback(config.issuer),
        ],
      },
    );
    try {
      return await discovered;
    } catch (error) {
      discovered = null; // The provider may be back for the next try.
      throw error;
    }
  };
  return {
    name: config.name,
    begin: async (redirectUri, askAgain) => {
      const provider = await discover();
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
    },
    finish: async (returned, flow) => {
      const tokens = await oidc.authorizationCodeGrant(
        await discover(),
        returned,
        {
          pkceCodeVerifier: flow.verifier,
          expectedState: flow.state,
          expectedNonce: flow.nonce,
          idTokenExpected: true,
        },
      );
      const claims = tokens.claims();
      if (claims === undefined) throw new NotAllowed("No identity was given");
      return checkIdentity(config.allowed, {
        issuer: claims.iss,
        subject: claims.sub,
        email: claims.email,
        isVerified: claims.email_verified === true,
      });
    },
  };
}

function checkIdentity(
  allowed: readonly string[],
  { issuer, subject, email, isVerified }: {
    issuer: string;
    subject: string;
    email: unknown;
    isVerified: boolean;
  },
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
