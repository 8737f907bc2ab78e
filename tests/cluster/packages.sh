#!/bin/sh
# Installs what Debian has and the suite needs, where it is missing.
set -eu
packages="runc containernetworking-plugins buildah busybox-static iproute2 iptables openssl util-linux binutils"
missing=$(for package in $packages; do dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"; done)
[ -n "$missing" ] || exit 0
command -v apt-get > /dev/null || { echo "these packages are missing:" $missing; exit 1; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 $missing; }
install || { apt-get update -qq && install; }
