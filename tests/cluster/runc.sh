#!/bin/sh
# What containerd takes for runc. A container gets a new sysfs of the real kernel; one in the node's own network
# namespace must see the booted host in it instead, as it would on that host.
bundle=
previous=
for word in "$@"; do
  [ "$previous" != --bundle ] || bundle=$word
  previous=$word
done
if [ -n "$bundle" ] && [ -f "$bundle/config.json" ]; then
  net=$(sed -n 's|.*"type":"network","path":"\([^"]*\)".*|\1|p' "$bundle/config.json")
  if [ -n "$net" ] && [ "$(readlink "$net")" = "$(readlink /proc/1/ns/net)" ]; then
    sed -i 's|"destination":"/sys","type":"sysfs","source":"sysfs","options":\[|"destination":"/sys","type":"bind","source":"/sys","options":["rbind",|' "$bundle/config.json"
  fi
fi
exec runc "$@"
