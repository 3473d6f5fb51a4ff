/** Names of services for the pods of a node, as a cluster's DNS server gives them. */
import { Buffer } from "node:buffer";
import { createSocket, type RemoteInfo } from "node:dgram";
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

/** What is known of a name is asked again after this long: a new pod has another address. */
const FRESH_MS = 1_000;

const servicesSchema = z.object({
  items: z.array(z.object({
    metadata: z.object({ name: z.string(), namespace: z.string() }),
    spec: z.object({ clusterIP: z.string() }),
  })),
});
const slicesSchema = z.object({
  items: z.array(z.object({
    metadata: z.object({
      namespace: z.string(),
      labels: z.record(z.string(), z.string()).default({}),
    }),
    endpoints: z.array(z.object({
      addresses: z.array(z.string()),
      hostname: z.string().optional(),
    })).nullish(),
  })),
});

/** The addresses of all services, and of pods with names of their own, by their names. */
async function addressesIn({ commands }: ControlPlane) {
  const list = async (kind: string): Promise<unknown> => {
    const args = ["get", kind, "--all-namespaces", "--output", "json"];
    return JSON.parse(await commands.kubectl(...args));
  };
  const addresses = new Map<string, string>();
  const add = (names: readonly string[], address: string) =>
    addresses.set([...names, "svc", DOMAIN].join("."), address);
  const services = servicesSchema.parse(await list("services"));
  for (const { metadata: { name, namespace }, spec } of services.items) {
    if (spec.clusterIP !== "None") add([name, namespace], spec.clusterIP);
  }
  const slices = slicesSchema.parse(await list("endpointslices"));
  for (const { metadata: { namespace, labels }, endpoints } of slices.items) {
    const service = labels["kubernetes.io/service-name"] ?? "";
    for (const { hostname, addresses: [address] } of endpoints ?? []) {
      if (hostname === undefined || address === undefined) continue;
      add([hostname, service, namespace], address);
    }
  }
  return addresses;
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
  let readAtMs = -Infinity;
  let reading: Promise<void> | null = null;
  const read = async () => {
    addresses = await addressesIn(cluster);
    readAtMs = performance.now();
  };
  const socket = createSocket("udp4");
  const answer = async (question: Buffer, from: RemoteInfo) => {
    const { name } = readQuestion(question);
    const isFresh = performance.now() - readAtMs < FRESH_MS;
    const isKnown = isFresh && addresses.has(name);
    if (name.endsWith(DOMAIN) && !isKnown) {
      reading ??= read().finally(() => {
        reading = null;
      });
      await reading;
    }
    socket.send(respond(question, addresses), from.port, from.address);
  };
  const answers = new Set<Promise<void>>();
  socket.on("message", (question, from) => {
    // Without an answer, whoever asks does so again: the server may be too busy.
    const answered = answer(question, from).catch(() => {}).finally(() => {
      answers.delete(answered);
    });
    answers.add(answered);
  });
  socket.bind(53, SERVER_ADDRESS);
  await once(socket, "listening");
  return {
    [Symbol.asyncDispose]: async () => {
      socket.removeAllListeners("message");
      await Promise.all(answers);
      await new Promise<void>((resolve) => socket.close(() => resolve()));
    },
  };
}
