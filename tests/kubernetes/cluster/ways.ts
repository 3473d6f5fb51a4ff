/** Which connections pods of a release can open: what NetworkPolicies leave. */
import * as zod from "zod";
import { type Namespace, RELEASE } from "./namespace.ts";

/** What a pod tries to reach. */
type Target = "nats" | "redis" | "api" | "metrics";

const STRANGER = "stranger";
const CONNECT_MS = 3_000;
/** Services of the stores that the chart brings. */
const BUNDLED = { nats: `${RELEASE}-nats`, redis: `${RELEASE}-redis` };
const openSchema = zod.array(zod.string());

/** Prints the names of those addresses that accept a connection, as JSON. */
const scriptFor = (addresses: Readonly<Record<Target, string>>) => `
  const open = async ([name, address]) => {
    const [hostname, port] = address.split(":");
    const connection = Deno.connect({ hostname, port: Number(port) });
    const late = new Promise((resolve) => setTimeout(resolve, ${CONNECT_MS}));
    return await Promise.race([connection.then(() => name), late])
      .catch(() => undefined);
  };
  const all = Object.entries(${JSON.stringify(addresses)});
  const found = await Promise.all(all.map(open));
  console.log(JSON.stringify(found.filter((each) => each !== undefined)));
  Deno.exit(0);
`;

/** Starts a pod that is none of the release, in its namespace, until it is disposed of. */
export async function addStranger(
  namespace: Namespace,
): Promise<AsyncDisposable> {
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: STRANGER, labels: { app: STRANGER } },
    spec: {
      automountServiceAccountToken: false,
      terminationGracePeriodSeconds: 0,
      securityContext: {
        runAsNonRoot: true,
        runAsUser: 10_001,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers: [{
        name: STRANGER,
        image: "gateway/edge-auth:local",
        command: ["sleep", "infinity"],
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { drop: ["ALL"] },
        },
      }],
    },
  };
  await namespace.send(JSON.stringify(pod), "create");
  await namespace.kubectl("wait", "--for=condition=Ready", `pod/${STRANGER}`);
  return {
    [Symbol.asyncDispose]: async () => {
      await namespace.kubectl("delete", "pod", STRANGER);
    },
  };
}

/** What each of these can reach: services of the release with its stores, and the stranger. */
export async function waysOf(
  namespace: Namespace,
  services: readonly string[],
  stores: Readonly<Record<"nats" | "redis", string>> = BUNDLED,
): Promise<Record<string, string[]>> {
  const address = (service: string) =>
    namespace.field(`service/${service}`, "{.spec.clusterIP}");
  const pods = await namespace.pods("edge-auth");
  const [edge] = pods.toSorted((a, b) =>
    a.metadata.name < b.metadata.name ? -1 : 1
  );
  const script = scriptFor({
    nats: `${await address(stores.nats)}:4222`,
    redis: `${await address(stores.redis)}:6379`,
    api: `${await address(`${RELEASE}-edge-auth`)}:80`,
    metrics: `${edge?.status.podIP}:9090`,
  });
  const found: Record<string, string[]> = {};
  for (const each of [...services, STRANGER]) {
    // Not the edge whose metrics are asked for.
    const pod = each === STRANGER
      ? STRANGER
      : (await namespace.podNames(each)).at(-1) ?? "";
    const command = ["deno", "eval", "--no-lock", script];
    const json = await namespace.kubectl("exec", pod, "--", ...command);
    found[each] = openSchema.parse(JSON.parse(json)).sort();
  }
  return found;
}
