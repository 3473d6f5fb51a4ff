/** Certificates for tests, made by openssl. */
import { runProcess } from "../process.ts";

/** Paths of a certificate and its key, PEM. */
export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

/** An authority, with a server and a client certificate that it has signed. */
export interface TestAuthority extends AsyncDisposable {
  caFile: string;
  /** For the names asked for, `localhost` and `127.0.0.1` by default. */
  server: CertificateFiles;
  client: CertificateFiles;
}

const THIS_MACHINE = "DNS:localhost,IP:127.0.0.1";
const NO_AUTHORITY = "basicConstraints=critical,CA:FALSE";

/**
 * Makes an authority with one server and one client certificate. Names are as openssl
 * writes them: `DNS:nats.example`.
 */
export async function createTestAuthority(
  serverNames = THIS_MACHINE,
): Promise<TestAuthority> {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const ca = await certify(directory, "Test authority", {
    extensions: ["basicConstraints=critical,CA:TRUE"],
  });
  const sign = (name: string, extensions: string[]) =>
    certify(directory, name, {
      extensions: [NO_AUTHORITY, ...extensions],
      args: ["-CA", ca.certFile, "-CAkey", ca.keyFile],
    });
  return {
    caFile: ca.certFile,
    server: await sign("server", [
      `subjectAltName=${serverNames}`,
      "extendedKeyUsage=serverAuth",
    ]),
    client: await sign("client", ["extendedKeyUsage=clientAuth"]),
    [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }),
  };
}

/**
 * A certificate for `hostname` that is its own authority, and its key, as PEM texts.
 */
export async function makeSelfSigned(hostname: string) {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const names = `subjectAltName=DNS:${hostname}`;
  const files = await certify(directory, hostname, {
    extensions: [names, NO_AUTHORITY],
  });
  const texts = await read(files);
  await Deno.remove(directory, { recursive: true });
  return texts;
}

/** What a client needs to connect with mutual TLS, as PEM texts. */
export interface ClientTls {
  caCerts: string[];
  cert: string;
  key: string;
}

/** Reads what a client needs to connect with mutual TLS, as PEM texts. */
export async function clientTls(
  { caFile, client }: TestAuthority,
): Promise<ClientTls> {
  const caCerts = [await Deno.readTextFile(caFile)];
  return { caCerts, ...await read(client) };
}

async function read({ certFile, keyFile }: CertificateFiles) {
  return {
    cert: await Deno.readTextFile(certFile),
    key: await Deno.readTextFile(keyFile),
  };
}

async function certify(
  directory: string,
  name: string,
  { extensions, args: more = [] }: { extensions: string[]; args?: string[] },
): Promise<CertificateFiles> {
  const file = `${directory}/${name.replaceAll(" ", "_")}`;
  const [certFile, keyFile] = [`${file}.pem`, `${file}.key`];
  const args = [
    "req",
    "-x509",
    "-subj",
    `/CN=${name}`,
    "-days",
    "2",
    "-nodes",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-keyout",
    keyFile,
    "-out",
    certFile,
    ...more,
    ...extensions.flatMap((extension) => ["-addext", extension]),
  ];
  await runProcess("openssl", args);
  return { certFile, keyFile };
}
