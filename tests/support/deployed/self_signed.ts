import { Buffer } from "node:buffer";
import { generateKeyPairSync, sign } from "node:crypto";

/** A certificate and its private key, both PEM. */
export interface SelfSigned {
  cert: string;
  key: string;
}

const OID_COMMON_NAME = "550403";
const OID_SUBJECT_ALT_NAME = "551d11";
const OID_ECDSA_WITH_SHA256 = "2a8648ce3d040302";

/**
 * Makes a certificate for `hostname` that is good for a day, signed by itself:
 * trust it by passing it as a CA. Made anew for each test, so that no private
 * key lies in the repository. RFC 5280, written out by hand.
 */
export function makeSelfSigned(hostname: string): SelfSigned {
  const { privateKey, publicKey } = generateKeyPairSync("ec", {
    namedCurve: "P-256",
  });
  const algorithm = sequence(oid(OID_ECDSA_WITH_SHA256));
  const name = sequence(
    der(0x31, sequence(oid(OID_COMMON_NAME), der(0x0c, utf8(hostname)))),
  );
  const day = 24 * 60 * 60 * 1_000;
  const altNames = sequence(der(0x82, utf8(hostname)));
  const extensions = sequence(
    sequence(oid(OID_SUBJECT_ALT_NAME), der(0x04, altNames)),
  );
  const toBeSigned = sequence(
    der(0xa0, der(0x02, Buffer.of(2))),
    der(0x02, Buffer.of(1)),
    algorithm,
    name,
    sequence(time(Date.now() - day), time(Date.now() + day)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, extensions),
  );
  const signature = sign("sha256", toBeSigned, privateKey);
  const certificate = sequence(
    toBeSigned,
    algorithm,
    der(0x03, Buffer.concat([Buffer.of(0), signature])),
  );
  return {
    cert: pem("CERTIFICATE", certificate),
    key: String(privateKey.export({ type: "pkcs8", format: "pem" })),
  };
}

/** One DER value: tag, length in as few bytes as it needs, content. */
function der(tag: number, ...contents: Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.of(tag), derLength(content.length), content]);
}

function derLength(bytes: number): Buffer {
  if (bytes < 0x80) return Buffer.of(bytes);
  return bytes < 0x100
    ? Buffer.of(0x81, bytes)
    : Buffer.of(0x82, bytes >> 8, bytes & 0xff);
}

function sequence(...contents: Uint8Array[]): Buffer {
  return der(0x30, ...contents);
}

function oid(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}

function utf8(text: string): Buffer {
  return Buffer.from(text);
}

/** `261120110000Z` */
function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\.\d+|[-:T]/g, "");
  return der(0x17, utf8(digits.slice(2)));
}

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString("base64").replace(/.{64}/g, "$&\n");
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
}
