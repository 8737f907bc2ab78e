// Reads the CDI specs of a directory with the library of container runtimes, which refuses what breaks the specification:
// cdi DIRECTORY. Prints each device, with the number of its nodes; nothing is injected, for the nodes need not exist here.
package main

import (
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(os.Args[1]), cdi.WithAutoRefresh(false))
	if err != nil {
		fail(err)
	}
	for path, errors := range cache.GetErrors() {
		fail(path, errors)
	}
	for _, name := range cache.ListDevices() {
		fmt.Println(name, len(cache.GetDevice(name).ContainerEdits.DeviceNodes))
	}
}

func fail(what ...any) {
	fmt.Fprintln(os.Stderr, what...)
	os.Exit(1)
}
