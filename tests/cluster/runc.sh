#!/bin/sh
# What containerd takes for runc. A container gets a new sysfs of the real kernel. On the booted host it would see that
# host's devices there: one in the node's own network namespace does here, too, one that has a part of /sys mounted,
# as containers with engines have, and one that is a device plugin. The others must see the netdevs of their own namespace.
bundle=
previous=
for word in "$@"; do
  [ "$previous" != --bundle ] || bundle=$word
  previous=$word
done
if [ -n "$bundle" ] && [ -f "$bundle/config.json" ]; then
  net=$(sed -n 's|.*"type":"network","path":"\([^"]*\)".*|\1|p' "$bundle/config.json")
  if { [ -n "$net" ] && [ "$(readlink "$net")" = "$(readlink /proc/1/ns/net)" ]; } ||
    grep -q -e '"destination":"/sys/class/' -e '"destination":"/var/lib/kubelet/device-plugins"' "$bundle/config.json"; then
    sed -i 's|"destination":"/sys","type":"sysfs","source":"sysfs","options":\[|"destination":"/sys","type":"bind","source":"/sys","options":["rbind",|' "$bundle/config.json"
  fi
fi
exec runc "$@"
