import * as oidc from "openid-client";
import type { Identity } from "../owners/owner_store.ts";

export interface OidcConfig {
  issuer: URL;
  clientId: string;
  clientSecret: string;
  /** Addresses and `@domains` that may sign in, in lower case. */
  allowed: readonly string[];
  /** On the button: "Continue with …". */
  name: string;
}

/** The provider authenticated this person, but they may not sign in here. */
export class NotAllowed extends Error {
  override name = "NotAllowed";
}

const TIMEOUT_SECONDS = 5;
/** Code verifier, state and nonce: what only this browser can present together. */
const FLOW = /^([\w-]{43})\.([\w-]{43})\.([\w-]{43})$/;

export type OidcClient = ReturnType<typeof createOidcClient>;

/**
 * Sign-in through an OpenID Connect provider: code flow with PKCE, state and nonce
 * (ASVS 10.5). Its metadata is fetched on first use and kept.
 */
export function createOidcClient(
  { issuer, clientId, clientSecret, allowed, name }: OidcConfig,
) {
  // HTTP is allowed on this machine only, for tests and development.
  const isLocal = issuer.protocol === "http:" &&
    ["localhost", "127.0.0.1"].includes(issuer.hostname);
  const options = {
    timeout: TIMEOUT_SECONDS,
    execute: [
      // Without it the library relies on TLS and leaves signatures unchecked.
      oidc.enableNonRepudiationChecks,
      ...(isLocal ? [oidc.allowInsecureRequests] : []),
    ],
  };
  let discovered: Promise<oidc.Configuration> | null = null;
  const provider = () =>
    discovered ??= oidc.discovery(
      ...[issuer, clientId, clientSecret, undefined, options] as const,
    ).catch((error) => {
      discovered = null; // The next sign-in asks the provider again.
      throw error;
    });
  return {
    name,
    /**
     * The address of the provider's page, and what the browser keeps in a cookie until
     * it comes back.
     */
    begin: async (redirectUri: URL, askAgain: boolean) => {
      const verifier = oidc.randomPKCECodeVerifier();
      const [state, nonce] = [oidc.randomState(), oidc.randomNonce()];
      const url = oidc.buildAuthorizationUrl(await provider(), {
        redirect_uri: redirectUri.href,
        scope: "openid email",
        code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
        code_challenge_method: "S256",
        state,
        nonce,
        ...(askAgain ? { prompt: "login", max_age: "0" } : {}),
      });
      return { url, flow: [verifier, state, nonce].join(".") };
    },
    /** Checks what the browser came back with. Throws on any mismatch. */
    finish: async (returned: URL, flow: string): Promise<Identity> => {
      const [, verifier, state, nonce] = FLOW.exec(flow) ?? [];
      if (!verifier || !state || !nonce) {
        throw new Error("The flow cookie is malformed");
      }
      const expected = { expectedState: state, expectedNonce: nonce };
      const claims = (await oidc.authorizationCodeGrant(
        ...[await provider(), returned] as const,
        { pkceCodeVerifier: verifier, idTokenExpected: true, ...expected },
      )).claims();
      if (claims === undefined) {
        throw new NotAllowed("The provider returned no identity");
      }
      const { iss: issuer, sub: subject, email, email_verified } = claims;
      if (typeof email !== "string" || email_verified !== true) {
        throw new NotAllowed("The provider has not verified an e-mail address");
      }
      const address = email.toLowerCase();
      const domain = address.slice(address.lastIndexOf("@"));
      // A mailbox in letters that only look like those of another is not that mailbox.
      const isOdd = email !== email.normalize("NFKC");
      if (isOdd || ![address, domain].some((name) => allowed.includes(name))) {
        throw new NotAllowed("This address may not sign in here");
      }
      return { issuer, subject, email: address };
    },
  };
}
