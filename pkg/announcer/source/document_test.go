package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// documentFor returns a small valid document; each pool makes another one.
func documentFor(pool string) string {
	return "apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\npools:\n- addresses: [" + pool + "]\n"
}

func accepted(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: acceptedConfigMap},
		Data:       map[string]string{config.ConfigMapKey: text},
	}
}

func TestInvalidDocumentKeepsTheLastGoodOneAndSaysSoOnce(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	good, _ := r.Config()
	bad := accepted("pools: [nonsense]")
	for i := range 3 {
		bad.Annotations = map[string]string{"example.org/try": fmt.Sprint(i)}
		r.api.put(bad)
	}
	eventually(t, "the fault is noticed", func() string {
		if r.ConfigFault() == nil {
			return "no fault"
		}
		return ""
	})
	r.api.put(&corev1.ConfigMap{ObjectMeta: bad.ObjectMeta})
	eventually(t, "the missing key is noticed", func() string {
		if err := r.ConfigFault(); !strings.Contains(err.Error(), errNoKey.Error()) {
			return err.Error()
		}
		return ""
	})
	r.api.remove(bad)
	r.api.put(machine("later"))
	r.has(t, "3", func(s plan.Snapshot) string { return fmt.Sprint(len(s.Nodes)) })
	if c, err := r.Config(); err != nil || c.Hash != good.Hash {
		t.Errorf("now %q in force (%v), want %q", c.Hash, err, good.Hash)
	}
	if got := r.log.count("configuration refused, keeping the last good one"); got != 2 {
		t.Errorf("%d complaints, want one for each of two faults", got)
	}
	r.api.put(accepted(documentFor("198.51.100.0/24")))
	r.has(t, "true", func(s plan.Snapshot) string { return fmt.Sprint(s.Config.Hash != good.Hash) })
	if err := r.ConfigFault(); err != nil {
		t.Errorf("still at fault: %v", err)
	}
}

func TestWithoutValidConfigurationNothingIsKnown(t *testing.T) {
	api := populated(t)
	api.put(accepted("{}"))
	r := run(t, api, nil)
	eventually(t, "only the configuration is missing", func() string {
		err := r.Known()
		if err == nil {
			t.Fatal("known without a valid configuration")
		}
		if strings.HasPrefix(err.Error(), "waiting for a valid configuration in ConfigMap kube-system/ccm-baremetal-accepted: ") {
			return ""
		}
		return err.Error()
	})
}

func TestConfigurationFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	api := populated(t)
	api.put(accepted(documentFor("203.0.113.0/24"))) // must not matter
	r := run(t, api, func(o *Options) { o.File = file })
	eventually(t, "the missing file is named", func() string {
		if err := r.Known(); !strings.Contains(fmt.Sprint(err), file) || !strings.Contains(fmt.Sprint(err), "no such file") {
			return fmt.Sprint(err)
		}
		return ""
	})
	write := func(pool string) {
		if err := os.WriteFile(file, []byte(documentFor(pool)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("192.0.2.0/25")
	r.known(t).has(t, "192.0.2.0-192.0.2.127", pool)
	write("192.0.2.128/25")
	r.has(t, "192.0.2.128-192.0.2.255", pool)
	if api.asked("/configmaps") != 0 {
		t.Error("the ConfigMap was read although there is a file")
	}
}

func pool(s plan.Snapshot) string { return s.Config.Pools[0].Ranges[0].String() }
