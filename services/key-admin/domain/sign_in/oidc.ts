/** Sign-in through an OpenID Connect provider. */
import * as openidClient from "openid-client";
import { parseStatedEmail } from "../owners/email.ts";
import type { Identity } from "../owners/owner_store.ts";
import { type GroupRules, groupsIn } from "./groups.ts";
import { isSafeUrl } from "./safe_url.ts";

/**
 * How somebody proves again who they are: `checked`, by the provider's `auth_time`, or
 * `trusted`, by coming back from the provider. Google states no `auth_time`:
 * https://developers.google.com/identity/openid-connect/openid-connect, 2026.
 */
export const REAUTHENTICATIONS = ["checked", "trusted"] as const;

/** How the console reaches a provider, and whom of its users it lets in. */
export interface OidcConfig {
  /** `https:`, or `http:` on this machine: see {@link isSafeUrl}. */
  issuer: URL;
  clientId: string;
  clientSecret: string;
  /** Addresses and `@domains` that may sign in, all in lower case. */
  allowed: readonly string[];
  reauthentication: typeof REAUTHENTICATIONS[number];
  /** The scope of the request: `openid email`, and more for groups. */
  scope: string;
  /** The claim with somebody's groups, and the rules for them; null without rules. */
  groups: { claim: string; rules: GroupRules } | null;
  /** Its name on the button: "Continue with …". */
  name: string;
}

/** The provider authenticated this person, but they may not sign in here. */
export class NotAllowed extends Error {
  override name = "NotAllowed";
}

/** Who signed in at the provider, and when they last proved who they are. */
export interface ProviderSignIn {
  identity: Identity;
  /**
   * When the provider last asked for a password or the like, in ms since 1970; 0 if it
   * does not say. It may be long ago, since providers keep people signed in.
   */
  provedAtMs: number;
  /** Their groups at the provider; null if unknown. */
  groups: readonly string[] | null;
}

const TIMEOUT_SECONDS = 5;

/** OpenID Connect Core 1.0, section 2. */
const SUBJECT_CHARS_MAX = 255;

/**
 * Somebody who was asked to sign in again must have done so within this time: as long
 * as the browser keeps the flow's cookie.
 */
const AGAIN_MAX_MS = 10 * 60_000;
/** How far the provider's clock may be ahead of ours. */
const SKEW_MAX_MS = 60_000;

/**
 * Code verifier, state and nonce, which only this browser can present together, and
 * whether it had to sign in again. Whoever removes that mark gains nothing: how long
 * ago a session proved who it is comes from the provider alone.
 */
const FLOW = /^([\w-]{43})\.([\w-]{43})\.([\w-]{43})(\.again)?$/;

/**
 * A client of one provider: code flow with PKCE, state and nonce (ASVS 10.5). The
 * provider's metadata is fetched on first use and kept.
 */
export class OidcClient {
  readonly #config: OidcConfig;
  #provider: Promise<openidClient.Configuration> | null = null;

  constructor(config: OidcConfig) {
    this.#config = config;
  }

  /** The name of the provider, as people know it. */
  get name(): string {
    return this.#config.name;
  }

  /** The rules for groups; null without rules. */
  get groupRules(): GroupRules | null {
    return this.#config.groups?.rules ?? null;
  }

  /**
   * The address of the provider's page, and what the browser keeps in a cookie until it
   * comes back. `mustProve`: the provider has to ask for a password even if the person
   * is signed in there. Rejects if the provider does not answer as expected.
   */
  async begin(
    redirectUri: URL,
    { mustProve }: { mustProve: boolean },
  ): Promise<{ url: URL; flow: string }> {
    const verifier = openidClient.randomPKCECodeVerifier();
    const state = openidClient.randomState();
    const nonce = openidClient.randomNonce();
    const url = openidClient.buildAuthorizationUrl(await this.#discover(), {
      redirect_uri: redirectUri.href,
      scope: this.#config.scope,
      code_challenge: await openidClient.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
      state,
      nonce,
      ...mustProve && this.#proof(),
    });
    const mark = mustProve ? ".again" : "";
    return { url, flow: [verifier, state, nonce].join(".") + mark };
  }

  /**
   * Checks what the browser came back with, at the address `returned` and with the
   * cookie `flow`. Throws on any mismatch; {@link NotAllowed} if everything matches but
   * this person may not sign in, or had to sign in again and did not.
   */
  async finish(
    returned: URL,
    flow: string,
    { nowMs }: { nowMs: number },
  ): Promise<ProviderSignIn> {
    const [, verifier, state, nonce, mark] = FLOW.exec(flow) ?? [];
    if (!verifier || !state || !nonce) {
      throw new Error("The flow cookie is malformed");
    }
    const provider = await this.#discover();
    const tokens = await openidClient.authorizationCodeGrant(
      provider,
      returned,
      {
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
        expectedState: state,
        expectedNonce: nonce,
      },
    );
    const claims = tokens.claims();
    if (claims === undefined) throw new NotAllowed(NOBODY);
    const identity = this.#identityOf(claims);
    const { groups: mapped } = this.#config;
    const groups = mapped && groupsIn(claims, mapped.claim);
    if (this.#isTrusted) return { identity, groups, provedAtMs: nowMs };
    const provedAtMs = (claims.auth_time ?? 0) * 1_000;
    if (mark !== undefined) checkProved(provedAtMs, nowMs);
    return { identity, groups, provedAtMs: Math.min(provedAtMs, nowMs) };
  }

  get #isTrusted(): boolean {
    return this.#config.reauthentication === "trusted";
  }

  /**
   * Returns the parameters that ask the provider to make somebody prove again who they
   * are.
   */
  #proof(): Record<string, string> {
    if (this.#isTrusted) return { prompt: "select_account" };
    // With `max_age` the provider must say when it asked (OpenID Connect Core, 2).
    return { prompt: "login", max_age: "0" };
  }

  #identityOf(claims: openidClient.IDToken): Identity {
    const { iss: issuer, sub: subject, email } = claims;
    if (subject === "" || subject.length > SUBJECT_CHARS_MAX) {
      throw new NotAllowed(NOBODY);
    }
    if (typeof email !== "string" || !isVerified(claims)) {
      throw new NotAllowed("The provider has not verified an e-mail address");
    }
    const address = parseStatedEmail(email);
    const domain = address?.slice(address.lastIndexOf("@"));
    const isAllowed = this.#config.allowed
      .some((name) => name === address || name === domain);
    if (address === null || !isAllowed) {
      throw new NotAllowed("This address may not sign in here");
    }
    return { issuer, subject, email: address };
  }

  async #discover(): Promise<openidClient.Configuration> {
    this.#provider ??= this.#fetchMetadata();
    try {
      return await this.#provider;
    } catch (error) {
      // The next sign-in asks the provider again.
      this.#provider = null;
      throw error;
    }
  }

  #fetchMetadata(): Promise<openidClient.Configuration> {
    const { issuer, clientId, clientSecret } = this.#config;
    // Without it the library relies on TLS and leaves signatures unchecked.
    const execute = [openidClient.enableNonRepudiationChecks];
    if (issuer.protocol === "http:" && isSafeUrl(issuer)) {
      execute.push(openidClient.allowInsecureRequests);
    }
    const options = { timeout: TIMEOUT_SECONDS, execute };
    return openidClient.discovery(
      issuer,
      clientId,
      clientSecret,
      undefined,
      options,
    );
  }
}

/**
 * Whether the provider vouches for the address. Entra ID has no `email_verified`; its
 * `xms_edov` says that the owner of the address' domain was verified:
 * https://learn.microsoft.com/entra/identity-platform/optional-claims-reference, 2026.
 */
function isVerified(
  { email_verified, xms_edov }: openidClient.IDToken,
): boolean {
  const words: unknown[] = [true, "true", 1, "1"];
  return email_verified === undefined
    ? words.includes(xms_edov)
    : email_verified === true || email_verified === "true";
}

const NOBODY = "The provider returned no identity";

/** `prompt` and `max_age` are wishes: only `auth_time` says that they were granted. */
function checkProved(provedAtMs: number, nowMs: number): void {
  const agoMs = nowMs - provedAtMs;
  if (agoMs > AGAIN_MAX_MS || agoMs < -SKEW_MAX_MS) {
    throw new NotAllowed(
      "The provider did not say that it asked who you are just now. Sign in again. If that fails too, ask your operator",
    );
  }
}
