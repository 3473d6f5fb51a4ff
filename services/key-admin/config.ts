/** The one place of this service that reads the environment. */
import { networksOf } from "@gateway/shared/process/client_address";
import {
  ConfigError,
  type ConfigOf,
  type Env,
  list,
  optional,
  parseEnv,
  secret,
  text,
  url,
  type Variable,
  variable,
} from "@gateway/shared/process/env";
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
import {
  defaultLimitsOf,
  LIMIT_VARIABLES,
} from "./domain/keys/default_limits.ts";
import type { OidcConfig } from "./domain/sign_in/oidc.ts";

const DEFAULT_PORT = 8081;
const MS_PER_SECOND = 1_000;
const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

/** An origin that passwords may be sent to: TLS, or this machine. */
const PUBLIC_URL: Variable<URL> = variable(
  {
    name: "PUBLIC_URL",
    meaning: "Origin of the console as browsers see it",
  },
  z.string().refine((value) => URL.canParse(value))
    .transform((value) => new URL(value))
    .refine(({ pathname, search, username }) =>
      pathname === "/" && search === "" && username === ""
    )
    .refine(({ protocol, hostname }) =>
      protocol === "https:" ||
      (protocol === "http:" && LOOPBACK.includes(hostname))
    ),
  {
    expects:
      "an origin such as https://console.example.org (http:// on localhost only)",
  },
);

/** Every variable of the console. */
export const CONSOLE_VARIABLES = {
  ...listenVariables(DEFAULT_PORT),
  ...SERVICE_VARIABLES,
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  publicUrl: optional(PUBLIC_URL),
  apiUrl: url({
    name: "API_URL",
    meaning: "Base URL of the API in the console's examples",
    protocols: ["http:", "https:"],
    fallback: "http://127.0.0.1:8080/v1",
  }),
  ...PROXY_VARIABLES,
  oidcIssuer: optional(url({
    name: "OIDC_ISSUER",
    meaning: "OpenID Connect provider whose users may sign in",
    protocols: ["https:", "http:"],
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
    meaning: "Name of the provider on the sign-in page",
    fallback: "your organisation",
  }),
  ...LIMIT_VARIABLES,
  modelSimulatorUrl: optional(url({
    name: "MODEL_SIMULATOR_URL",
    meaning: "Base URL of the model simulator; the console shows a banner",
    protocols: ["http:", "https:"],
  })),
} as const;

/** The configuration in the units and shapes that the code uses. */
export type Config = ReturnType<typeof configFrom>;

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig(): Config {
  return configFrom(Deno.env.toObject(), Deno.readTextFileSync);
}

/** The same from any environment. */
export function configFrom(
  variables: Env,
  readFile: (path: string) => string,
) {
  const env = parseEnv(CONSOLE_VARIABLES, variables, readFile);
  return {
    logLevel: env.logLevel,
    hostname: env.host,
    port: env.port,
    ops: { hostname: env.opsHost, port: env.opsPort },
    redis: redisAccess(env, readFile),
    bus: busAccess(env),
    /** Null: the address it listens on. */
    publicUrl: env.publicUrl ?? null,
    /** Without a slash at the end. */
    apiUrl: env.apiUrl.replace(/\/$/, ""),
    trustedProxies: networksOf(env.trustedProxies),
    oidc: oidcOf(env),
    defaultLimits: defaultLimitsOf(env),
    isSimulated: env.modelSimulatorUrl !== undefined &&
      !variables.MODELS_FILE && !variables.UPSTREAM_BASE_URL,
    drainMs: env.drainSeconds * MS_PER_SECOND,
  };
}

function oidcOf(env: ConfigOf<typeof CONSOLE_VARIABLES>): OidcConfig | null {
  const { oidcIssuer, oidcClientId, oidcClientSecret, oidcAllowed } = env;
  if (oidcIssuer === undefined) return null;
  const missing = [
    oidcClientId ? "" : "OIDC_CLIENT_ID is needed with OIDC_ISSUER",
    oidcClientSecret ? "" : "OIDC_CLIENT_SECRET is needed with OIDC_ISSUER",
    oidcAllowed.length > 0
      ? ""
      : "OIDC_ALLOWED is needed with OIDC_ISSUER\nwithout it everybody with an account there could sign in",
  ].filter((text) => text !== "");
  if (missing.length > 0) throw new ConfigError("the environment", missing);
  return {
    issuer: new URL(oidcIssuer),
    clientId: oidcClientId ?? "",
    clientSecret: oidcClientSecret ?? "",
    allowed: oidcAllowed.map((item) => item.toLowerCase()),
    name: env.oidcName,
  };
}
