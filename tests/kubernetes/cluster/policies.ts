/** Enforces NetworkPolicies on the node, by the firewall of kube-router. */
import { type ControlPlane, SERVICE_NETWORK } from "./control_plane.ts";
import { NODE_NAME } from "./node.ts";

/** Its other parts would do what kube-proxy and the network of pods do. */
const ARGS = [
  "--run-firewall=true",
  "--run-router=false",
  "--run-service-proxy=false",
  "--health-port=0",
  `--hostname-override=${NODE_NAME}`,
  `--service-cluster-ip-range=${SERVICE_NETWORK}`,
];

/** From now on, pods that a policy selects can be reached and reach as it says only. */
export function enforcePolicies(cluster: ControlPlane): void {
  cluster.start("kube-router", [`--kubeconfig=${cluster.kubeconfig}`, ...ARGS]);
}
