import { ConfigError } from "@gateway/shared/config_error";
import { z } from "zod";

/** Everything an operator can set, checked. Every variable, its unit and default are in the schema below. */
export interface Config {
  port: number;
  opsPort: number;
  hostname: string;
  redisUrl: string;
  natsUrl: string;
  /** Origin of the console as browsers see it; null: the address it listens on. */
  publicUrl: URL | null;
  /** Base URL of the API in examples, without a slash at the end. */
  apiUrl: string;
  logLevel: "debug" | "info" | "warn" | "error";
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

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

const port = z.coerce.number().int().min(0).max(65_535);
const list = z.string().transform((text) =>
  text.split(",").map((item) => item.trim()).filter((item) => item !== "")
);
const origin = z.url({ protocol: /^https?$/ })
  .transform((text) => new URL(text))
  .refine(
    (url) => url.pathname === "/" && url.search === "" && url.username === "",
    "must be an origin such as https://console.example.org",
  )
  .refine(
    (url) => url.protocol === "https:" || LOOPBACK.includes(url.hostname),
    "must begin with https:// (http is possible on localhost only)",
  );

const environment = z.object({
  /** Port of the console; 0 for any free one. */
  PORT: port.default(8081),
  /** Port of `/healthz`, `/readyz` and `/metrics`, never public; 0 for any free one. */
  OPS_PORT: port.default(9081),
  /** Address to listen on. */
  HOST: z.string().default("127.0.0.1"),
  REDIS_URL: z.url({ protocol: /^rediss?$/ }).default("redis://127.0.0.1:6379"),
  NATS_URL: z.url({ protocol: /^(nats|tls)$/ }).default(
    "nats://127.0.0.1:4222",
  ),
  /** Origin of the console as browsers see it. Default: this machine. */
  PUBLIC_URL: origin.optional(),
  /** Base URL of the API, for the examples. */
  API_URL: z.url({ protocol: /^https?$/ }).default("http://127.0.0.1:8080/v1"),
  LOG_LEVEL: z.enum(["debug", "info", "warn", "error"]).default("info"),
  /** Addresses of proxies in front, comma separated. */
  TRUSTED_PROXIES: list.default([]),
  OIDC_ISSUER: z.url({ protocol: /^https?$/ }).optional(),
  OIDC_CLIENT_ID: z.string().min(1).optional(),
  OIDC_CLIENT_SECRET: z.string().min(1).optional(),
  /** Addresses and `@domains` that may sign in, comma separated. */
  OIDC_ALLOWED: list.default([]),
  OIDC_NAME: z.string().max(40).default("your organisation"),
});

type Environment = z.infer<typeof environment>;

/** Reads the configuration. An empty variable counts as not set. Throws `ConfigError` with all mistakes at once. */
export function readConfig(
  variables: Readonly<Record<string, string>>,
): Config {
  const given = Object.fromEntries(
    Object.entries(variables).filter(([, value]) => value !== ""),
  );
  const parsed = environment.safeParse(given);
  if (!parsed.success) {
    throw badConfig(
      parsed.error.issues.map(({ path, message }) =>
        `${path.join(".")}: ${message}`
      ),
    );
  }
  const env = parsed.data;
  const oidc = readOidc(env);
  return {
    port: env.PORT,
    opsPort: env.OPS_PORT,
    hostname: env.HOST,
    redisUrl: env.REDIS_URL,
    natsUrl: env.NATS_URL,
    publicUrl: env.PUBLIC_URL ?? null,
    apiUrl: env.API_URL.replace(/\/$/, ""),
    logLevel: env.LOG_LEVEL,
    trustedProxies: env.TRUSTED_PROXIES,
    oidc,
  };
}

/** The process's environment. */
export function readProcessConfig(): Config {
  return readConfig(Deno.env.toObject());
}

function badConfig(problems: readonly string[]): ConfigError {
  return new ConfigError("the environment of key-admin", problems);
}

function readOidc(env: Environment): OidcConfig | null {
  if (env.OIDC_ISSUER === undefined) return null;
  const problems = [
    ["OIDC_CLIENT_ID", env.OIDC_CLIENT_ID],
    ["OIDC_CLIENT_SECRET", env.OIDC_CLIENT_SECRET],
  ].filter(([, value]) => value === undefined)
    .map(([name]) => `${name}: needed with OIDC_ISSUER`);
  if (env.OIDC_ALLOWED.length === 0) {
    problems.push(
      "OIDC_ALLOWED: needed with OIDC_ISSUER, or everybody with an account there could sign in",
    );
  }
  if (problems.length > 0) throw badConfig(problems);
  return {
    issuer: new URL(env.OIDC_ISSUER),
    clientId: env.OIDC_CLIENT_ID ?? "",
    clientSecret: env.OIDC_CLIENT_SECRET ?? "",
    allowed: env.OIDC_ALLOWED.map((item) => item.toLowerCase()),
    name: env.OIDC_NAME,
  };
}
