//go:build !apiserver

package main

import (
	"context"

	"github.com/spf13/cobra"

	kubectl "k8s.io/kubectl/pkg/cmd"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	programs["kube-controller-manager"] = func() *cobra.Command { return kcm.NewControllerManagerCommand() }
	programs["kube-scheduler"] = func() *cobra.Command { return scheduler.NewSchedulerCommand() }
	programs["kubelet"] = func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
	programs["kube-proxy"] = func() *cobra.Command { return proxy.NewProxyCommand() }
	programs["kubectl"] = func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() }
}
