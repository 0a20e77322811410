package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/vm/wire"
)

// Accelerators.
const (
	accelAuto = "auto"
	accelKVM  = "kvm"
	accelTCG  = "tcg"
)

// kvmLimit is the hard limit of the boot that probes KVM. A KVM that works
// needs about a second; one in a nested guest may hang for ever.
const kvmLimit = 20 * time.Second

// probe is the cached answer of the KVM probe. It holds for one boot of the
// host and one QEMU program.
type probe struct {
	BootID string
	QEMU   string
	KVM    bool
}

// chooseAccel returns the accelerator that want stands for.
func (m *Machine) chooseAccel(ctx context.Context, cache, want string) (string, error) {
	switch want {
	case accelKVM, accelTCG:
		return want, nil
	case "", accelAuto:
	default:
		return "", fmt.Errorf("accelerator %q is none of auto, kvm, tcg", want)
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return accelTCG, nil
	}
	f.Close()
	now, err := m.probeKey()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "kvm.json")
	var old probe
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &old) == nil {
		if old.BootID == now.BootID && old.QEMU == now.QEMU {
			return accelName(old.KVM), nil
		}
	}
	now.KVM = m.probeKVM(ctx)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.log.Info("probed KVM", "works", now.KVM)
	text, err := json.Marshal(now)
	if err != nil {
		return "", err
	}
	return accelName(now.KVM), writeFile(file, text)
}

func accelName(kvm bool) string {
	if kvm {
		return accelKVM
	}
	return accelTCG
}

func (m *Machine) probeKey() (probe, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return probe{}, err
	}
	info, err := os.Stat(m.qemu)
	if err != nil {
		return probe{}, err
	}
	return probe{BootID: strings.TrimSpace(string(id)), QEMU: fmt.Sprint(m.qemu, " ", info.ModTime().UTC())}, nil
}

// probeKVM boots a guest that does nothing.
func (m *Machine) probeKVM(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, kvmLimit)
	defer cancel()
	trial := *m
	trial.accel = accelKVM
	dir, err := os.MkdirTemp("", "lbd-vm-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initrd")
	if err := trial.writeInitrd(initrd, Request{}); err != nil {
		return false
	}
	return trial.boot(ctx, dir, initrd, kvmLimit, &outcome{sink: silent{}}) == nil
}

type silent struct{}

func (silent) Begin(int)           {}
func (silent) Output(bool, []byte) {}
func (silent) Exit(wire.Exit)      {}
