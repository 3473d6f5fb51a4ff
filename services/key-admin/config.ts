/** The one place of this service that reads the environment. */
import {
  ConfigError,
  type ConfigOf,
  list,
  optional,
  parseEnv,
  port,
  secret,
  text,
  url,
  type Variable,
} from "@gateway/shared/env";
import type { LogLevel } from "@gateway/shared/log";
import type { RedisAddress } from "@gateway/shared/redis/link";
import {
  listenVariables,
  NATS_VARIABLES,
  REDIS_VARIABLES,
  SERVICE_VARIABLES,
} from "@gateway/shared/service_variables";
import {
  type BusAccess,
  busAccess,
  redisAccess,
} from "@gateway/shared/store_access";

const DEFAULT_PORT = 8081;
const DEFAULT_OPS_PORT = 9081;
const MS_PER_SECOND = 1_000;
const NAME_CHARS_MAX = 40;

const HTTP = ["http:", "https:"];
const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

/** Every variable of the console. */
export const ADMIN_VARIABLES = {
  ...listenVariables(DEFAULT_PORT),
  ...SERVICE_VARIABLES,
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  host: text({
    name: "HOST",
    meaning: "Address to listen on",
    fallback: "127.0.0.1",
  }),
  opsPort: port({
    name: "OPS_PORT",
    meaning: SERVICE_VARIABLES.opsPort.meaning,
    fallback: DEFAULT_OPS_PORT,
  }),
  publicUrl: optional(originOf({
    name: "PUBLIC_URL",
    meaning: "The console as browsers see it; this machine if absent",
  })),
  apiUrl: url({
    name: "API_URL",
    meaning: "Base URL of the API, for the examples",
    protocols: HTTP,
    fallback: "http://127.0.0.1:8080/v1",
  }),
  trustedProxies: list({
    name: "TRUSTED_PROXIES",
    meaning: "Addresses of proxies whose X-Forwarded-For is believed",
    fallback: [],
  }),
  oidcIssuer: optional(url({
    name: "OIDC_ISSUER",
    meaning: "OpenID Connect provider to sign in with; none if absent",
    protocols: HTTP,
  })),
  oidcClientId: optional(text({
    name: "OIDC_CLIENT_ID",
    meaning: "The console's name at the provider",
  })),
  oidcClientSecret: optional(secret({
    name: "OIDC_CLIENT_SECRET",
    meaning: "The console's secret at the provider",
  })),
  oidcAllowed: list({
    name: "OIDC_ALLOWED",
    meaning: "E-mail addresses and @domains that may sign in",
    fallback: [],
  }),
  oidcName: text({
    name: "OIDC_NAME",
    meaning: 'The provider, as the button says it: "Continue with …"',
    fallback: "your organisation",
    pattern: new RegExp(`^\\P{Cc}{1,${NAME_CHARS_MAX}}$`, "u"),
    expects: `a text of at most ${NAME_CHARS_MAX} characters`,
  }),
} as const;

/** What the console was told, in the units and shapes its code uses. */
export interface Config {
  port: number;
  hostname: string;
  ops: { hostname: string; port: number };
  redis: RedisAddress;
  bus: BusAccess;
  /** Origin of the console as browsers see it; null: the address it listens on. */
  publicUrl: URL | null;
  /** Base URL of the API in examples, without a slash at the end. */
  apiUrl: string;
  logLevel: LogLevel;
  drainMs: number;
  /** Addresses of proxies whose `X-Forwarded-For` is believed. */
  trustedProxies: readonly string[];
  oidc: OidcConfig | null;
}

/** An OpenID Connect provider, fixed by the operator (API7). */
export interface OidcConfig {
  issuer: URL;
  clientId: string;
  clientSecret: string;
  /** Addresses and `@domains` that may sign in. */
  allowed: readonly string[];
  /** On the button: "Continue with …". */
  name: string;
}

/** An origin that browsers may send passwords to: https, or this machine. */
function originOf(
  options: { name: string; meaning: string },
): Variable<string> {
  const known = url({ ...options, protocols: HTTP });
  return {
    ...known,
    expects:
      "an origin such as https://console.example.org (http on localhost only)",
    schema: known.schema.refine(isSafeOrigin),
  };
}

function isSafeOrigin(value: string): boolean {
  const { pathname, search, username, protocol, hostname } = new URL(value);
  return pathname === "/" && search === "" && username === "" &&
    (protocol === "https:" || LOOPBACK.includes(hostname));
}

/** Reads the configuration. An empty variable counts as not set. Throws `ConfigError` with all mistakes at once. */
export function readConfig(
  variables: Readonly<Record<string, string>>,
): Config {
  return toConfig(parseEnv(ADMIN_VARIABLES, variables, Deno.readTextFileSync));
}

/** The process's environment. */
export function readProcessConfig(): Config {
  return readConfig(Deno.env.toObject());
}

function toConfig(env: ConfigOf<typeof ADMIN_VARIABLES>): Config {
  return {
    port: env.port,
    hostname: env.host,
    ops: { hostname: env.opsHost, port: env.opsPort },
    redis: redisAccess(env, Deno.readTextFileSync),
    bus: busAccess(env),
    publicUrl: env.publicUrl === undefined ? null : new URL(env.publicUrl),
    apiUrl: env.apiUrl.replace(/\/$/, ""),
    logLevel: env.logLevel,
    drainMs: env.drainSeconds * MS_PER_SECOND,
    trustedProxies: env.trustedProxies,
    oidc: readOidc(env),
  };
}

function readOidc(env: ConfigOf<typeof ADMIN_VARIABLES>): OidcConfig | null {
  const { oidcIssuer, oidcClientId, oidcClientSecret, oidcAllowed } = env;
  if (oidcIssuer === undefined) return null;
  const mistakes = [
    ["OIDC_CLIENT_ID", oidcClientId],
    ["OIDC_CLIENT_SECRET", oidcClientSecret],
  ].filter(([, value]) => value === undefined)
    .map(([name]) => `${name}: needed with OIDC_ISSUER`);
  if (oidcAllowed.length === 0) {
    mistakes.push(
      "OIDC_ALLOWED: needed with OIDC_ISSUER, or everybody with an account there could sign in",
    );
  }
  if (mistakes.length > 0) throw new ConfigError("the environment", mistakes);
  return {
    issuer: new URL(oidcIssuer),
    clientId: oidcClientId ?? "",
    clientSecret: oidcClientSecret ?? "",
    allowed: oidcAllowed.map((item) => item.toLowerCase()),
    name: env.oidcName,
  };
}
