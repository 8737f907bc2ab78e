// A kubelet's side of the device plugin API, with the kubelet's own gRPC library and the dial options of its device
// manager and of its plugin watcher.
//
//	kubelet DIRECTORY          listens on DIRECTORY/kubelet.sock, dials back, lists, allocates the first device
//	kubelet -discover SOCKET   asks a socket of plugins_registry who it is
//
// Prints a line for each answer.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type kubelet struct {
	deviceplugin.UnimplementedRegistrationServer
	directory string
}

func dial(ctx context.Context, path string, more ...grpc.DialOption) *grpc.ClientConn {
	options := append(more,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}))
	connection, err := grpc.DialContext(ctx, path, options...)
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

func (k *kubelet) Register(_ context.Context, request *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	fmt.Printf("register %s %s %s preferred=%v\n", request.Version, request.ResourceName, request.Endpoint,
		request.Options.GetPreferredAllocationAvailable)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	path := filepath.Join(k.directory, request.Endpoint)
	plugin := deviceplugin.NewDevicePluginClient(dial(ctx, path, grpc.WithAuthority("localhost")))
	options, err := plugin.GetDevicePluginOptions(ctx, &deviceplugin.Empty{})
	if err != nil {
		return nil, err
	}
	fmt.Printf("options preferred=%v\n", options.GetPreferredAllocationAvailable)
	go listen(plugin)
	return &deviceplugin.Empty{}, nil
}

func listen(plugin deviceplugin.DevicePluginClient) {
	stream, err := plugin.ListAndWatch(context.Background(), &deviceplugin.Empty{})
	if err != nil {
		log.Fatal(err)
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			fmt.Printf("end %v\n", err)
			return
		}
		fmt.Print("list")
		for _, device := range list.Devices {
			fmt.Printf(" %s=%s", device.ID, device.Health)
		}
		fmt.Println()
		for _, id := range []string{list.Devices[0].ID, "unknown"} {
			answer, err := plugin.Allocate(context.Background(), &deviceplugin.AllocateRequest{
				ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: []string{id}}},
			})
			if err != nil {
				fmt.Printf("refused %v\n", err)
				continue
			}
			container := answer.ContainerResponses[0]
			fmt.Printf("allocated %s %s %s\n", container.Envs["IDS"], container.Devices[0].HostPath, container.CdiDevices[0].Name)
		}
	}
}

func discover(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := pluginregistration.NewRegistrationClient(dial(ctx, path))
	info, err := client.GetInfo(ctx, &pluginregistration.InfoRequest{})
	if err != nil {
		fmt.Printf("refused %v\n", err)
		return
	}
	fmt.Printf("info %s %s %s %v\n", info.Type, info.Name, info.Endpoint, info.SupportedVersions)
}

func main() {
	if len(os.Args) == 3 {
		discover(os.Args[2])
		return
	}
	directory := os.Args[1]
	listener, err := net.Listen("unix", filepath.Join(directory, "kubelet.sock"))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	deviceplugin.RegisterRegistrationServer(server, &kubelet{directory: directory})
	fmt.Println("ready")
	log.Fatal(server.Serve(listener))
}
