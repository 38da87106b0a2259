// The parts of cert-manager that make certificates by an authority of the cluster, in one process: its controllers, the injector of CAs
// and its webhook, from its own module. Upstream's programs are modules of their own, which no module proxy has.
//
//	cert-manager KUBECONFIG PORT CERTIFICATE KEY     the webhook listens at PORT, by CERTIFICATE
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/apis/config/shared"
	config "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	"github.com/cert-manager/cert-manager/internal/webhook"
	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/util"

	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// Where Secrets of ClusterIssuers are.
const namespace = "cert-manager"

func runControllers(ctx context.Context, tasks *errgroup.Group, access string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:    access,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: namespace},
		// Upstream's defaults.
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	for _, construct := range controller.Known() {
		one, err := construct(factory)
		if err != nil {
			return err
		}
		tasks.Go(func() error { return one.Run(2, ctx) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return nil
}

func runInjector(ctx context.Context, tasks *errgroup.Group, access string) error {
	rest, err := clientcmd.BuildConfigFromFlags("", access)
	if err != nil {
		return err
	}
	// What it writes is written by this name.
	rest = util.RestConfigWithUserAgent(rest, "cainjector")
	for _, add := range []func() error{
		func() error { return certmanager.AddToScheme(scheme.Scheme) },
		func() error { return apiextensions.AddToScheme(scheme.Scheme) },
		func() error { return aggregator.AddToScheme(scheme.Scheme) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(rest, ctrl.Options{Scheme: scheme.Scheme, Metrics: metrics.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	options := cainjector.SetupOptions{EnableCertificatesDataSource: true, EnabledReconcilersFor: map[string]bool{
		cainjector.MutatingWebhookConfigurationName: true,
	}}
	if err := cainjector.RegisterAllInjectors(ctx, manager, options); err != nil {
		return err
	}
	tasks.Go(func() error { return manager.Start(ctx) })
	return nil
}

func runWebhook(ctx context.Context, tasks *errgroup.Group, access, port, certificate, key string) error {
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	server, err := webhook.NewCertManagerWebhookServer(klog.Background(), config.WebhookConfiguration{
		SecurePort:           int32(number),
		KubeConfig:           access,
		TLSConfig:            shared.TLSConfig{Filesystem: shared.FilesystemServingConfig{CertFile: certificate, KeyFile: key}},
		MetricsListenAddress: "0",
	})
	if err != nil {
		return err
	}
	tasks.Go(func() error { return server.Run(ctx) })
	return nil
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("cert-manager KUBECONFIG PORT CERTIFICATE KEY")
	}
	access := os.Args[1]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.Background())
	tasks, ctx := errgroup.WithContext(ctx)
	err := runWebhook(ctx, tasks, access, os.Args[2], os.Args[3], os.Args[4])
	if err == nil {
		err = runControllers(ctx, tasks, access)
	}
	if err == nil {
		err = runInjector(ctx, tasks, access)
	}
	if err == nil {
		err = tasks.Wait()
	}
	if err != nil {
		log.Fatal(err)
	}
}
