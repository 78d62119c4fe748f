// Stand-in for NVIDIA's device plugin and DRA driver: it offers equal GPUs to the kubelet, and says how a container
// gets them as those do. GPUs are GPU-00000000-0000-0000-0000-<index>, as of nvml.c; sharing and MIG have no part.
//
//	gpu-plugin device RESOURCE COUNT STRATEGY [UNHEALTHY]    envvar, volume-mounts, cdi-annotations or cdi-cri; the first UNHEALTHY GPUs are
//	gpu-plugin dra NODE COUNT DEVICE             its "attributes" and "capacity", as JSON
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	driver = "gpu.nvidia.com"
	kind   = "nvidia.com/gpu="
)

func uuid(index int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", index) }

type devicePlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	count     int
	unhealthy int
	strategy  string
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	var offered deviceplugin.ListAndWatchResponse
	for i := range p.count {
		health := deviceplugin.Healthy
		if i < p.unhealthy {
			health = deviceplugin.Unhealthy
		}
		offered.Devices = append(offered.Devices, &deviceplugin.Device{ID: uuid(i), Health: health})
	}
	if err := stream.Send(&offered); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// https://github.com/NVIDIA/k8s-device-plugin/blob/v0.19.0/internal/plugin/server.go, getAllocateResponse
func (p *devicePlugin) Allocate(_ context.Context, asked *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	var answer deviceplugin.AllocateResponse
	for _, request := range asked.ContainerRequests {
		var container deviceplugin.ContainerAllocateResponse
		var qualified []string
		for _, id := range request.DevicesIds {
			qualified = append(qualified, kind+id)
		}
		switch p.strategy {
		case "envvar":
			container.Envs = map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(request.DevicesIds, ",")}
		case "volume-mounts":
			container.Envs = map[string]string{"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}
			for _, id := range request.DevicesIds {
				path := filepath.Join("/var/run/nvidia-container-devices", id)
				container.Mounts = append(container.Mounts, &deviceplugin.Mount{HostPath: "/dev/null", ContainerPath: path})
			}
		case "cdi-annotations":
			container.Annotations = map[string]string{"cdi.k8s.io/nvidia-device-plugin_" + request.DevicesIds[0]: strings.Join(qualified, ",")}
		case "cdi-cri":
			for _, name := range qualified {
				container.CdiDevices = append(container.CdiDevices, &deviceplugin.CDIDevice{Name: name})
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &container)
	}
	return &answer, nil
}

func serveDevicePlugin(resource string, count int, strategy string) error {
	unhealthy := 0
	if len(os.Args) > 5 {
		unhealthy, _ = strconv.Atoi(os.Args[5])
	}
	name := strings.ReplaceAll(resource, "/", "-") + ".sock"
	path := filepath.Join(deviceplugin.DevicePluginPath, name)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, &devicePlugin{count: count, unhealthy: unhealthy, strategy: strategy})
	kubelet, err := grpc.NewClient("unix://"+deviceplugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	go func() {
		registration := &deviceplugin.RegisterRequest{Version: deviceplugin.Version, Endpoint: name, ResourceName: resource}
		_, err := deviceplugin.NewRegistrationClient(kubelet).Register(context.Background(), registration, grpc.WaitForReady(true))
		if err != nil {
			log.Fatal(err)
		}
	}()
	return server.Serve(listener)
}

type draPlugin struct{}

func (draPlugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, device := range claim.Status.Allocation.Devices.Results {
			if device.Driver == driver {
				id := kind + strings.TrimPrefix(device.Device, "gpu-")
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests: []string{device.Request}, PoolName: device.Pool, DeviceName: device.Device, CDIDeviceIDs: []string{id},
				})
			}
		}
		prepared[claim.UID] = result
	}
	return prepared, nil
}

func (draPlugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	unprepared := map[types.UID]error{}
	for _, claim := range claims {
		unprepared[claim.UID] = nil
	}
	return unprepared, nil
}

func (draPlugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (draPlugin) HandleError(_ context.Context, err error, message string) { log.Println(message, err) }

func serveDRA(node string, count int, attributes string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	var shared struct {
		Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
		Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
	}
	if err := json.Unmarshal([]byte(attributes), &shared); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join("/var/lib/kubelet/plugins", driver), 0o750); err != nil {
		return err
	}
	ctx := context.Background()
	helper, err := kubeletplugin.Start(ctx, draPlugin{}, kubeletplugin.DriverName(driver), kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(kubernetes.NewForConfigOrDie(config)))
	if err != nil {
		return err
	}
	var devices []resourceapi.Device
	for i := range count {
		own := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		for name, value := range shared.Attributes {
			own[name] = value
		}
		id := uuid(i)
		own["uuid"] = resourceapi.DeviceAttribute{StringValue: &id}
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: own, Capacity: shared.Capacity})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}); err != nil {
		return err
	}
	select {}
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	serve := map[string]func(string, int, string) error{"device": serveDevicePlugin, "dra": serveDRA}[os.Args[1]]
	log.Fatal(serve(os.Args[2], count, os.Args[4]))
}
