// hk is every program of a small Kubernetes test cluster in one binary, chosen by argv[0] (a link's name) or argv[1].
//
// One binary, since the programs share nearly all of their packages: it links once and takes a quarter of the room.
// This file has what every ring needs, etcd and kube-apiserver; rest.go adds the others, and is left out with the
// build tag "apiserver".
package main

import (
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// programs holds each program's command by the name that picks it. etcd is not among them: it has no cobra command.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver": func() *cobra.Command { return apiserver.NewAPIServerCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	switch {
	case name == "etcd":
		etcdmain.Main(append([]string{"etcd"}, os.Args[1:]...))
	case known(name):
		run(name)
	default:
		fmt.Fprintln(os.Stderr, "usage: hk PROGRAM ARGS, PROGRAM one of:", names())
		os.Exit(2)
	}
}

func known(name string) bool { return name == "etcd" || programs[name] != nil }

func names() []string {
	all := []string{"etcd"}
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// run does what the program's own main() does around its command.
func run(name string) {
	if name != "kubelet" { // kubelet parses its flags itself and fails on a normalized set
		pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	}
	if name == "kube-proxy" || name == "kubectl" {
		pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
	}
	logs.InitLogs()
	err := programs[name]().Execute()
	logs.FlushLogs()
	if err != nil {
		os.Exit(1)
	}
}
