// A device plugin as the Go plugin is one: sockets under its names, its way to register: plugin DIRECTORY RESOURCE ID…
package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	devices  []*api.Device
}

func (*plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	name := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(p.resource))
	for _, container := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{name: strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}

func main() {
	directory := os.Args[1]
	p := &plugin{resource: os.Args[2]}
	for _, id := range os.Args[3:] {
		p.devices = append(p.devices, &api.Device{ID: id, Health: api.Healthy})
	}
	endpoint := strings.ReplaceAll(p.resource, "/", "_") + ".sock"
	path := filepath.Join(directory, endpoint)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() {
		kubelet, err := grpc.NewClient("unix://"+filepath.Join(directory, "kubelet.sock"),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		limited, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err = api.NewRegistrationClient(kubelet).Register(limited, &api.RegisterRequest{
			Version: api.Version, Endpoint: endpoint, ResourceName: p.resource,
		})
		if err != nil {
			panic(err)
		}
	}()
	if err := server.Serve(listener); err != nil {
		panic(err)
	}
}
