/** The one place of this service that reads the environment. */
import {
  ConfigError,
  type ConfigOf,
  type Env,
  list,
  matching,
  parseEnv,
  secret,
  text,
  url,
  type Variable,
  variable,
} from "@gateway/shared/process/env";
import {
  CATALOG_VARIABLES,
  catalogIfGiven,
  requireCatalog,
} from "@gateway/shared/models/catalog_variables";
import {
  busAccess,
  listenVariables,
  NATS_VARIABLES,
  PROXY_VARIABLES,
  REDIS_VARIABLES,
  redisAccess,
  SERVICE_VARIABLES,
} from "@gateway/shared/process/service_variables";
import * as z from "zod";
import { defaultLimitsOf, LIMIT_VARIABLES } from "./domain/keys/settings.ts";
import type { OidcConfig } from "./domain/sign_in/oidc.ts";

const DEFAULT_PORT = 8081;
const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

/** Whether passwords may be sent to an origin: it has TLS, or is this machine. */
function isSafeOrigin(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || url.href !== `${url.origin}/`) return false;
  return url.protocol === "https:" ||
    (url.protocol === "http:" && LOOPBACK.includes(url.hostname));
}

const PUBLIC_URL: Variable<URL> = variable(
  z.string().refine(isSafeOrigin).transform((text) => new URL(text)),
  {
    expects:
      "an origin such as https://console.example.org (http:// on localhost only)",
  },
);

export const CONSOLE_VARIABLES = {
  ...listenVariables(DEFAULT_PORT),
  ...SERVICE_VARIABLES,
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  PUBLIC_URL: PUBLIC_URL.optional()
    .describe("Origin of the console as browsers see it"),
  API_URL: url(["http:", "https:"]).default("http://127.0.0.1:8080/v1")
    .describe("Base URL of the API in the console's examples"),
  EDGE_URL: url(["http:", "https:"]).optional()
    .describe(
      "Base URL of the API for this service itself, which sends the requests of the page Try it; `API_URL` if not set",
    ),
  ...PROXY_VARIABLES,
  OIDC_ISSUER: url(["https:", "http:"]).optional()
    .describe("OpenID Connect provider whose users may sign in"),
  OIDC_CLIENT_ID: text().optional()
    .describe("The console's name at the provider"),
  OIDC_CLIENT_SECRET: secret().optional()
    .describe("The console's secret at the provider"),
  OIDC_ALLOWED: list("a list", matching(/^/)).default([])
    .describe("E-mail addresses and @domains that may sign in"),
  OIDC_NAME: text().default("your organisation")
    .describe("Name of the provider on the sign-in page"),
  ...LIMIT_VARIABLES,
  ...CATALOG_VARIABLES,
};

export type Config = ReturnType<typeof readConfig>;

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig() {
  const config = configFrom(Deno.env.toObject(), Deno.readTextFileSync);
  return { ...config, catalog: requireCatalog(config.catalog) };
}

/** Reads the configuration from any environment. Only the service needs a catalog. */
export function configFrom(variables: Env, readFile: (path: string) => string) {
  const env = parseEnv(CONSOLE_VARIABLES, variables, readFile);
  return {
    logLevel: env.LOG_LEVEL,
    hostname: env.HOST,
    port: env.PORT,
    ops: { hostname: env.OPS_HOST, port: env.OPS_PORT },
    redis: redisAccess(env),
    bus: busAccess(env),
    /** Null: the address that the console listens on. */
    publicUrl: env.PUBLIC_URL ?? null,
    /** Without a trailing slash. */
    apiUrl: env.API_URL.replace(/\/$/, ""),
    /** Without a trailing slash. */
    edgeUrl: (env.EDGE_URL ?? env.API_URL).replace(/\/$/, ""),
    trustedProxies: env.TRUSTED_PROXIES,
    oidc: oidcOf(env),
    defaultLimits: defaultLimitsOf(env),
    isSimulated: env.MODEL_SIMULATOR_URL !== undefined &&
      env.MODELS_FILE === undefined && env.UPSTREAM_BASE_URL === undefined,
    /** Its keys of model servers are not needed here. */
    catalog: catalogIfGiven(env, false),
    drainMs: env.DRAIN_SECONDS * 1_000,
  };
}

function oidcOf(env: ConfigOf<typeof CONSOLE_VARIABLES>): OidcConfig | null {
  const { OIDC_ISSUER, OIDC_CLIENT_ID = "", OIDC_CLIENT_SECRET = "" } = env;
  if (OIDC_ISSUER === undefined) return null;
  // Without OIDC_ALLOWED anyone with an account at the provider could sign in.
  const missing = Object.entries({
    ...{ OIDC_CLIENT_ID, OIDC_CLIENT_SECRET, OIDC_ALLOWED: env.OIDC_ALLOWED },
  }).filter(([, value]) => value.length === 0)
    .map(([name]) => `${name} is needed with OIDC_ISSUER`);
  if (missing.length > 0) throw new ConfigError("the environment", missing);
  return {
    issuer: new URL(OIDC_ISSUER),
    clientId: OIDC_CLIENT_ID,
    clientSecret: OIDC_CLIENT_SECRET,
    allowed: env.OIDC_ALLOWED.map((item) => item.toLowerCase()),
    name: env.OIDC_NAME,
  };
}
