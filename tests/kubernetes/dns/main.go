// A CoreDNS with the few plugins that a cluster of tests needs: names of Services and of their pods, and nothing besides.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	// In the order in which a question meets them.
	dnsserver.Directives = []string{"bind", "ready", "errors", "cache", "kubernetes", "template"}
}

func main() { coremain.Run() }
