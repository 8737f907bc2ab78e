#!/bin/sh
# up.sh BIN IMAGES PCIDP, inside the namespaces that host.sh prepared: etcd, API server, scheduler, controller manager,
# containerd, Multus and a kubelet, until the node is ready. All of it lies in /run/cluster.
set -eu
bin=$1 images=$2 pcidp=$3
here=$(cd "$(dirname "$0")" && pwd)
R=/run/cluster
LIMIT=${LIMIT:-60}
export PATH="$bin:$PATH:/usr/sbin:/sbin" KUBECONFIG=$R/kubeconfig TMPDIR=/run/tmp
mkdir -p $R/log $R/pid $R/cni/conf $R/cni/bin
cd $R

start() {
  name=$1
  shift
  "$@" >> $R/log/"$name".log 2>&1 &
  echo $! > $R/pid/"$name"
}
# A program that ends instead of answering is told at once.
until_answers() {
  name=$1
  shift
  for try in $(seq $((LIMIT * 10))); do
    "$@" > $R/log/last 2>&1 && return
    kill -0 "$(cat $R/pid/"$name")" 2>/dev/null || break
    sleep 0.1
  done
  echo "$name does not answer to: $*"
  cat $R/log/last
  tail -n 20 $R/log/"$name".log
  exit 1
}

token=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
echo "$token,admin,admin,system:masters" > tokens.csv
openssl genrsa -out sa.key 2048 2>/dev/null
cat > kubeconfig <<K
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: cluster, context: {cluster: cluster, user: admin}}]
current-context: cluster
K

start etcd etcd --data-dir=$R/etcd --unsafe-no-fsync --listen-peer-urls=http://127.0.0.1:2380 \
  --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379
start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --advertise-address=192.168.77.2 \
  --cert-dir=$R/certs --token-auth-file=$R/tokens.csv --authorization-mode=RBAC --service-cluster-ip-range=10.96.0.0/24 \
  --service-account-issuer=https://kubernetes.default.svc --service-account-signing-key-file=$R/sa.key \
  --service-account-key-file=$R/sa.key --allow-privileged=true --kubelet-preferred-address-types=InternalIP

cp /usr/lib/cni/* cni/bin/
# Debian's host-device is too old to find every netdev by its device.
cp "$bin/multus" "$bin/host-device" cni/bin/
# SR-IOV CNI asks a PF over netlink, and the PFs here are no PFs. In its place stands what moves a netdev alike, so that
# networks can be applied as they ship.
ln -sf host-device cni/bin/sriov
# Not a list of plugins: of those, Multus 4.2 remembers nothing but the types until the pod ends, and removes nothing.
cat > cni/conf/10-bridge.conf <<K
{"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "pods0", "isGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "10.96.0.0/24"}], "dataDir": "$R/cni/ipam"}}
K
cat > cni/conf/00-multus.conf <<K
{"cniVersion": "0.3.1", "name": "multus", "type": "multus", "kubeconfig": "$R/kubeconfig", "confDir": "$R/cni/conf",
 "binDir": "$R/cni/bin", "cniDir": "$R/multus", "logLevel": "debug", "logFile": "$R/log/multus.log",
 "clusterNetwork": "$R/cni/conf/10-bridge.conf"}
K
cat > containerd.toml <<K
version = 3
root = "$R/containerd/root"
state = "$R/containerd/state"
[grpc]
address = "$R/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["$R/cni/bin"]
conf_dir = "$R/cni/conf"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "$here/runc.sh"
K
start containerd containerd -c $R/containerd.toml

until_answers apiserver kubectl get --raw /readyz
start scheduler kube-scheduler --kubeconfig=$R/kubeconfig --leader-elect=false
start controllers kube-controller-manager --kubeconfig=$R/kubeconfig --leader-elect=false \
  --service-account-private-key-file=$R/sa.key --root-ca-file=$R/certs/apiserver.crt
until_answers containerd ctr -a $R/containerd.sock version
for image in "$images"/*.tar "$pcidp"; do ctr -a $R/containerd.sock -n k8s.io images import "$image" > /dev/null; done
# The pods in deployments/ name it so.
ctr -a $R/containerd.sock -n k8s.io images tag localhost/busybox:1 docker.io/library/busybox:1.36 > /dev/null

cat > kubelet.yaml <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {imagefs.available: "1%", nodefs.available: "1%", memory.available: "50Mi"}
containerRuntimeEndpoint: unix://$R/containerd.sock
volumePluginDir: $R/volume-plugins
syncFrequency: 5s
nodeStatusUpdateFrequency: 1s
featureGates: {KubeletPodResourcesGet: true}
${KUBELET:-}
K
# Kept, so that a test can start a killed kubelet again.
cat > kubelet.sh <<K
exec kubelet --config=$R/kubelet.yaml --kubeconfig=$R/kubeconfig --hostname-override=node1 --node-ip=192.168.77.2 -v=3
K
start kubelet sh kubelet.sh
cat > multus.yaml <<K
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition, shortNames: [net-attach-def]}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
K
kubectl apply -f multus.yaml
kubectl wait --for=create --timeout=${LIMIT}s node/node1
kubectl wait --for=condition=Ready --timeout=${LIMIT}s node/node1 || { tail -n 20 $R/log/kubelet.log; exit 1; }
kubectl wait --for=create --timeout=${LIMIT}s serviceaccount/default
kubectl wait --for=condition=Established --timeout=${LIMIT}s crd/network-attachment-definitions.k8s.cni.cncf.io
