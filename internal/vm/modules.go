package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/lbd-project/lbd/internal/vm/cpio"
	"github.com/lbd-project/lbd/internal/vm/kmod"
	"github.com/lbd-project/lbd/internal/vm/wire"
	"github.com/ulikunitz/xz"
)

// baseVersion is part of the base archive's name: raise it when what goes into
// the archive changes.
const baseVersion = 2

// moduleTrees are the folders whose modules the guest gets, with all that they
// need: everything of networking that a balancer may meet.
var moduleTrees = []string{"kernel/net"}

// moduleSkip are folders of moduleTrees that only cost time.
var moduleSkip = []string{
	"kernel/net/6lowpan", "kernel/net/9p", "kernel/net/appletalk", "kernel/net/atm", "kernel/net/ax25",
	"kernel/net/batman-adv", "kernel/net/bluetooth", "kernel/net/caif", "kernel/net/can", "kernel/net/ceph",
	"kernel/net/dccp", "kernel/net/hsr", "kernel/net/ieee802154", "kernel/net/lapb", "kernel/net/mac80211",
	"kernel/net/mac802154", "kernel/net/netrom", "kernel/net/nfc", "kernel/net/openvswitch", "kernel/net/phonet",
	"kernel/net/qrtr", "kernel/net/rds", "kernel/net/rfkill", "kernel/net/rose", "kernel/net/rxrpc",
	"kernel/net/smc", "kernel/net/sunrpc", "kernel/net/tipc", "kernel/net/vmw_vsock", "kernel/net/wireless",
	"kernel/net/x25",
}

// moduleNeeds are the modules without which a kernel is of no use.
var moduleNeeds = []string{"virtio_pci", "virtio_console", "ip_vs"}

// moduleNames are further modules, or aliases, where the kernel has them:
// the console of the rig, devices for topologies, and algorithms that modules
// ask for while they run.
var moduleNames = []string{
	"virtio_pci", "virtio_console", "virtio_rng",
	"bonding", "dummy", "geneve", "ifb", "ipvlan", "ipvtap", "macvlan", "macvtap", "nlmon", "tap", "tun", "veth", "vrf", "vxlan", "wireguard",
	"crypto-crc32c", "crypto-hmac", "crypto-md5", "crypto-sha1", "crypto-sha256",
}

// scanModules reads all modules of a kernel. It returns the index and each
// module's file by name.
func scanModules(k kernel) (*kmod.Index, map[string]string, error) {
	x := new(kmod.Index)
	f, err := os.Open(filepath.Join(k.modules, "modules.builtin"))
	if err == nil {
		err = x.AddBuiltins(f)
		f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read modules.builtin: %w", err)
	}
	files := make(map[string]string)
	err = filepath.WalkDir(filepath.Join(k.modules, "kernel"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || kmod.NameOf(file) == "" {
			return err
		}
		data, err := readModule(file)
		if err != nil {
			return err
		}
		m, err := kmod.ReadELF(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		rel, err := filepath.Rel(k.modules, file)
		if err != nil {
			return err
		}
		m.Path = plainName(rel)
		files[m.Name] = file
		x.Add(m)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read modules of %s: %w", k.release, err)
	}
	return x, files, nil
}

// plainName cuts what follows .ko off a module's file name.
func plainName(file string) string {
	dir, base := path.Split(file)
	stem, _, _ := strings.Cut(base, ".ko")
	return dir + stem + ".ko"
}

// readModule returns a module file's contents, uncompressed: the guest's init
// loads it as it is.
func readModule(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	switch filepath.Ext(file) {
	case ".xz":
		r, err = xz.NewReader(f)
	case ".zst":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(f); err == nil {
			defer d.Close()
			r = d
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	// The largest Debian module is under 10 MB.
	const limit = 256 << 20
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, limit)
	}
	return data, nil
}

// signatureMark ends a signed module (include/linux/module_signature.h).
const signatureMark = "~Module signature appended~\n"

// unsigned returns a module without its signature. Checking it takes an
// emulated processor longer than all else in loading a module; the kernel loads
// one without, and notes that in its log.
func unsigned(data []byte) []byte {
	rest, ok := bytes.CutSuffix(data, []byte(signatureMark))
	// struct module_signature ends with the signature's length, big-endian.
	const trailer = 12
	if !ok || len(rest) < trailer {
		return data
	}
	n := binary.BigEndian.Uint32(rest[len(rest)-4:])
	if uint64(n) > uint64(len(rest)-trailer) {
		return data
	}
	return rest[:len(rest)-trailer-int(n)]
}

// selectModules returns the modules that the guest gets.
func selectModules(x *kmod.Index) []*kmod.Module {
	var names []string
	for _, m := range x.Modules() {
		if within(m.Path, moduleTrees) && !within(m.Path, moduleSkip) {
			names = append(names, m.Name)
		}
	}
	names = append(names, moduleNames...)
	out := make(map[string]*kmod.Module)
	for _, n := range names {
		// One by one: a name that this kernel lacks must not cost the others.
		order, err := x.Order(n)
		if err != nil {
			continue
		}
		for _, m := range order {
			out[m.Name] = m
		}
	}
	all := make([]*kmod.Module, 0, len(out))
	for _, m := range out {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *kmod.Module) int { return strings.Compare(a.Path, b.Path) })
	return all
}

func within(file string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(file, d+"/") })
}

// baseArchive returns the file of the archive with a kernel's modules, which is
// made once per kernel.
func baseArchive(k kernel) (string, error) {
	file := filepath.Join(k.dir, fmt.Sprintf("base-%d.cpio", baseVersion))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	all, files, err := scanModules(k)
	if err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(k.dir, ".base-")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := writeModules(tmp, k.release, all, files); err != nil {
		return "", err
	}
	if err := tmp.Close(); err != nil {
		return "", err
	}
	return file, os.Rename(tmp.Name(), file)
}

func writeModules(w io.Writer, release string, all *kmod.Index, files map[string]string) error {
	c := cpio.NewWriter(w)
	var x kmod.Index
	x.CopyBuiltins(all)
	for _, name := range moduleNeeds {
		if _, err := all.Order(name); err != nil {
			return fmt.Errorf("kernel %s is of no use here: %w", release, err)
		}
	}
	for _, m := range selectModules(all) {
		data, err := readModule(files[m.Name])
		if err != nil {
			return err
		}
		if err := c.File(path.Join("lib/modules", release, m.Path), 0o644, unsigned(data)); err != nil {
			return err
		}
		x.Add(*m)
	}
	var index bytes.Buffer
	if err := x.Encode(&index); err != nil {
		return err
	}
	if err := c.File(wire.IndexFile, 0o644, index.Bytes()); err != nil {
		return err
	}
	return c.Close()
}
