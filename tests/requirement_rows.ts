/**
 * The rows of ASVS 5.0 and of the OWASP API Security Top 10 (2023) that this
 * product was measured against. Each either has a test with its id in its name,
 * or does not apply here, for the reason beside it.
 */

/** Why a row has no test here; null: it has one. */
export type Row = string | null;

const TEST: Row = null;

/** ASVS 5.0, by id. */
export const ASVS_ROWS: Readonly<Record<string, Row>> = {
  // Encoding and injection
  "1.2.1": TEST,
  "1.2.4": TEST,
  "1.2.10": TEST,
  "1.3.2": TEST,
  "1.5.3": TEST,
  // Validation and business logic
  "2.2.1": TEST,
  "2.2.2": TEST,
  "2.3.3": TEST,
  "2.3.4": TEST,
  "2.4.1": TEST,
  // Web front end
  "3.2.2": TEST,
  "3.3.1": TEST,
  "3.3.2": TEST,
  "3.3.3": TEST,
  "3.3.4": TEST,
  "3.4.1": TEST,
  "3.4.2": TEST,
  "3.4.3": TEST,
  "3.4.4": TEST,
  "3.4.5": TEST,
  "3.4.6": TEST,
  "3.5.1": TEST,
  "3.5.2": TEST,
  "3.5.3": TEST,
  "3.5.4": TEST,
  "3.6.1": TEST,
  "3.7.2": TEST,
  // API
  "4.1.1": TEST,
  "4.1.2": TEST,
  "4.1.3": TEST,
  "4.1.4": TEST,
  "4.2.1": TEST,
  // Authentication
  "6.1.1": TEST,
  "6.1.2": TEST,
  "6.2.1": TEST,
  "6.2.2": TEST,
  "6.2.3": TEST,
  "6.2.4": TEST,
  "6.2.5": TEST,
  "6.2.6": TEST,
  "6.2.7": TEST,
  "6.2.8": TEST,
  "6.2.9": TEST,
  "6.3.1": TEST,
  "6.3.2": TEST,
  "6.3.3": TEST,
  "6.3.5": TEST,
  "6.3.8": TEST,
  "6.4.1": TEST,
  "6.5.1": TEST,
  "6.5.2": TEST,
  "6.8.1": TEST,
  // Sessions
  "7.1.1": TEST,
  "7.2.2": TEST,
  "7.2.3": TEST,
  "7.2.4": TEST,
  "7.3.1": TEST,
  "7.3.2": TEST,
  "7.4.1": TEST,
  "7.4.3": TEST,
  "7.5.1": TEST,
  "7.5.2": TEST,
  "7.5.3": TEST,
  // Authorization
  "8.2.1": TEST,
  "8.2.2": TEST,
  "8.3.2": TEST,
  "8.4.1": TEST,
  // OpenID Connect
  "10.1.2": TEST,
  "10.2.1": TEST,
  "10.5.1": TEST,
  "10.5.2": TEST,
  "10.5.3": TEST,
  "10.5.4": TEST,
  // Cryptography
  "11.2.1": TEST,
  "11.4.2": TEST,
  "11.5.1": TEST,
  // Communication
  "12.1.1": TEST,
  "12.1.2":
    "the suites are those of Caddy, Redis and nats-server; nothing here sets any",
  "12.1.3":
    "certificates admit to the stores, where passwords tell the services apart",
  "12.1.4": "level 3, and of the operator's certificate",
  "12.1.5": "level 3, and of the operator's certificate",
  "12.2.1": TEST,
  "12.2.2":
    "the certificate is the operator's: docs/operating.md says how it is given",
  "12.3.1": TEST,
  "12.3.2": TEST,
  "12.3.3":
    "services speak over NATS and Redis; between proxy and service is one machine's network",
  "12.3.4": TEST,
  "12.3.5": "level 3; mutual TLS to the stores is there for who wants it",
  // Configuration
  "13.2.1": TEST,
  "13.2.2": TEST,
  "13.2.3": TEST,
  "13.4.4": TEST,
  "13.4.5": TEST,
  // Data protection
  "14.2.1": TEST,
  "14.3.2": TEST,
  // Secure coding
  "15.3.1": TEST,
  "15.3.3": TEST,
  "15.3.4": TEST,
  "15.3.6": TEST,
  // Logging and errors
  "16.2.5": TEST,
  "16.3.1": TEST,
  "16.3.2": TEST,
  "16.3.3": TEST,
  "16.4.1": TEST,
  "16.5.1": TEST,
  "16.5.2": TEST,
  "16.5.3": TEST,
};

/** OWASP API Security Top 10 of 2023. */
export const API_ROWS: Readonly<Record<string, Row>> = {
  /** Broken object level authorization. */
  API1: TEST,
  /** Broken authentication. */
  API2: TEST,
  /** Broken object property level authorization. */
  API3: TEST,
  /** Unrestricted resource consumption. */
  API4: TEST,
  /** Broken function level authorization. */
  API5: TEST,
  /** Unrestricted access to sensitive business flows. */
  API6: TEST,
  /** Server side request forgery. */
  API7: TEST,
  /** Security misconfiguration. */
  API8: TEST,
  /** Improper inventory management. */
  API9: TEST,
  /** Unsafe consumption of APIs. */
  API10: TEST,
};
