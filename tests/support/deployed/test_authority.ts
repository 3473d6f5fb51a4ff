import { startProcess } from "../process.ts";

/** A certificate and its key, as PEM files. */
export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

/** A certificate authority of a test, and what it signed. The files go with it. */
export type TestAuthority = Awaited<ReturnType<typeof createTestAuthority>>;

const THIS_MACHINE = "DNS:localhost,IP:127.0.0.1";

/**
 * Makes an authority with one server and one client certificate, using openssl.
 *
 * @param serverNames As openssl writes them: `DNS:nats.example,IP:10.0.0.1`.
 */
export async function createTestAuthority(serverNames = THIS_MACHINE) {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const ca = filesIn(directory, "ca");
  await openssl([
    ...["req", "-x509", "-subj", "/CN=Test authority", "-days", "2"],
    ...newKey(ca),
    ...["-addext", "basicConstraints=critical,CA:TRUE"],
  ]);
  const sign = async (name: string, extensions: string[]) => {
    const files = filesIn(directory, name);
    await openssl([
      ...["req", "-x509", "-subj", `/CN=${name}`, "-days", "2"],
      ...newKey(files),
      ...["-CA", ca.certFile, "-CAkey", ca.keyFile],
      ...["basicConstraints=critical,CA:FALSE", ...extensions]
        .flatMap((extension) => ["-addext", extension]),
    ]);
    return files;
  };
  return {
    caFile: ca.certFile,
    /** For the names asked for, `localhost` and `127.0.0.1` by default. */
    server: await sign("server", [
      `subjectAltName=${serverNames}`,
      "extendedKeyUsage=serverAuth",
    ]),
    client: await sign("client", ["extendedKeyUsage=clientAuth"]),
    [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }),
  };
}

/** A certificate for `hostname` that is its own authority, and its key, as PEM texts. */
export async function makeSelfSigned(hostname: string) {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const files = filesIn(directory, "self");
  await openssl([
    ...["req", "-x509", "-subj", `/CN=${hostname}`, "-days", "2"],
    ...newKey(files),
    ...["-addext", `subjectAltName=DNS:${hostname}`],
    ...["-addext", "basicConstraints=critical,CA:FALSE"],
  ]);
  const cert = await Deno.readTextFile(files.certFile);
  const key = await Deno.readTextFile(files.keyFile);
  await Deno.remove(directory, { recursive: true });
  return { cert, key };
}

/** The client of an authority, for a connection of the test's own. */
export async function clientTls({ caFile, client }: TestAuthority) {
  return {
    caCerts: [await Deno.readTextFile(caFile)],
    cert: await Deno.readTextFile(client.certFile),
    key: await Deno.readTextFile(client.keyFile),
  };
}

const filesIn = (directory: string, name: string): CertificateFiles => ({
  certFile: `${directory}/${name}.pem`,
  keyFile: `${directory}/${name}.key`,
});

const newKey = ({ certFile, keyFile }: CertificateFiles): string[] => [
  ...["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
  ...["-keyout", keyFile, "-out", certFile],
];

async function openssl(args: string[]): Promise<void> {
  await using process = startProcess({ command: "openssl", args });
  const { success } = await process.exited;
  if (!success) throw new Error(`openssl failed: ${process.output()}`);
}
