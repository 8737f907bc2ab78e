// Prints the descriptors of the kubelet's gRPC APIs as one serialised FileDescriptorSet.
package main

import (
	"log"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func main() {
	set := &descriptorpb.FileDescriptorSet{}
	for _, file := range []protoreflect.FileDescriptor{
		(&deviceplugin.Empty{}).ProtoReflect().Descriptor().ParentFile(),
		(&pluginregistration.InfoRequest{}).ProtoReflect().Descriptor().ParentFile(),
		(&podresources.ListPodResourcesRequest{}).ProtoReflect().Descriptor().ParentFile(),
	} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	bytes, err := proto.Marshal(set)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(bytes); err != nil {
		log.Fatal(err)
	}
}
