/** Names of services for the pods of a node, as a cluster's DNS server gives them. */
import { Buffer } from "node:buffer";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { z } from "zod";
import { type ControlPlane, SERVER_ADDRESS } from "./control_plane.ts";

/** The domain of all services: `<service>.<namespace>.svc.cluster.local`. */
export const DOMAIN = "cluster.local";
const HEAD_BYTES = 12;
/** After the name of a question come its type and its class. */
const QUESTION_BYTES = 4;
const TYPE_A = 1;
/** A response of the server that knows the domain; the last digit is the code. */
const FLAGS = 0x8580;
const NO_SUCH_NAME = 3;
/** The name of the question, an address of the Internet for five seconds, four bytes. */
const ANSWER = [0xc0, HEAD_BYTES, 0, TYPE_A, 0, 1, 0, 0, 0, 5, 0, 4];

const servicesSchema = z.object({
  items: z.array(z.object({
    metadata: z.object({ name: z.string(), namespace: z.string() }),
    spec: z.object({ clusterIP: z.string() }),
  })),
});

/** The addresses of all services by their names. */
async function addressesIn({ commands }: ControlPlane) {
  const args = ["get", "services", "--all-namespaces", "--output", "json"];
  const json = await commands.kubectl(...args);
  return new Map(
    servicesSchema.parse(JSON.parse(json)).items.map(({ metadata, spec }) => {
      const { name, namespace } = metadata;
      return [`${name}.${namespace}.svc.${DOMAIN}`, spec.clusterIP];
    }),
  );
}

/** The name in a question, and where the question ends. */
function readQuestion(message: Buffer) {
  const labels: string[] = [];
  let at = HEAD_BYTES;
  while (true) {
    const length = message.readUInt8(at);
    at += 1;
    if (length === 0) break;
    labels.push(message.toString("latin1", at, at + length).toLowerCase());
    at += length;
  }
  const type = message.readUInt16BE(at);
  return { name: labels.join("."), type, end: at + QUESTION_BYTES };
}

/** The response to a question: an address, that there is none, or no such name. */
function respond(message: Buffer, addresses: ReadonlyMap<string, string>) {
  const { name, type, end } = readQuestion(message);
  const address = addresses.get(name);
  const hasAnswer = address !== undefined && type === TYPE_A;
  const head = Buffer.alloc(HEAD_BYTES);
  message.copy(head, 0, 0, 2);
  head.writeUInt16BE(FLAGS | (address === undefined ? NO_SUCH_NAME : 0), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(hasAnswer ? 1 : 0, 6);
  const answer = hasAnswer
    ? Buffer.from([...ANSWER, ...address.split(".").map(Number)])
    : Buffer.alloc(0);
  return Buffer.concat([head, message.subarray(HEAD_BYTES, end), answer]);
}

/** Answers questions on port 53 until it is disposed of. */
export async function serveNames(
  cluster: ControlPlane,
): Promise<AsyncDisposable> {
  let addresses = new Map<string, string>();
  const socket = createSocket("udp4");
  socket.on("message", async (message, { port, address }) => {
    const { name } = readQuestion(message);
    if (name.endsWith(DOMAIN) && !addresses.has(name)) {
      addresses = await addressesIn(cluster);
    }
    socket.send(respond(message, addresses), port, address);
  });
  socket.bind(53, SERVER_ADDRESS);
  await once(socket, "listening");
  return {
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => socket.close(() => resolve())),
  };
}
