// Runs the ReplicaSet controller of Kubernetes, alone: it creates the pods of ReplicaSets and records events.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server, and as whom")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		panic(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := replicaset.NewReplicaSetController(
		ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, replicaset.BurstReplicas,
	)
	factory.Start(ctx.Done())
	controller.Run(ctx, 1)
}
