package vm

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/lbd-project/lbd/internal/vm/kmod"
	"github.com/ulikunitz/xz"
)

// object makes an ELF relocatable file with nothing but a .modinfo section.
func object(modinfo string) []byte {
	const names = "\x00.modinfo\x00.shstrtab\x00"
	le := binary.LittleEndian
	body := modinfo + names
	for len(body)%8 != 0 {
		body += "\x00"
	}
	b := []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	b = le.AppendUint16(b, 1)                    // ET_REL
	b = le.AppendUint16(b, 62)                   // EM_X86_64
	b = le.AppendUint32(b, 1)                    // version
	b = le.AppendUint64(b, 0)                    // entry
	b = le.AppendUint64(b, 0)                    // program headers
	b = le.AppendUint64(b, 64+uint64(len(body))) // section headers
	b = le.AppendUint32(b, 0)                    // flags
	for _, v := range []uint16{64, 0, 0, 64, 3, 2} {
		b = le.AppendUint16(b, v)
	}
	b = append(b, body...)
	section := func(name, kind uint32, offset, size int) {
		b = le.AppendUint32(b, name)
		b = le.AppendUint32(b, kind)
		b = le.AppendUint64(b, 0)
		b = le.AppendUint64(b, 0)
		b = le.AppendUint64(b, uint64(offset))
		b = le.AppendUint64(b, uint64(size))
		b = append(b, make([]byte, 24)...)
	}
	section(0, 0, 0, 0)
	section(1, 1, 64, len(modinfo))
	section(10, 3, 64+len(modinfo), len(names))
	return b
}

// testKernel is an unpacked kernel with modules in every form they come in.
func testKernel(t *testing.T) kernel {
	t.Helper()
	dir := t.TempDir()
	k := kernel{dir: dir, release: "6.1.0-test", modules: filepath.Join(dir, "lib/modules/6.1.0-test")}
	write := func(name string, data []byte) {
		t.Helper()
		file := filepath.Join(k.modules, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	x, err := xz.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	x.Write(object("name=nf_conntrack\x00depends=libcrc32c\x00"))
	x.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	write("modules.builtin", []byte("kernel/drivers/virtio/virtio_pci.ko\n"))
	write("kernel/net/netfilter/ipvs/ip_vs.ko", object("name=ip_vs\x00depends=nf_conntrack\x00"))
	write("kernel/net/netfilter/nf_conntrack.ko.xz", packed.Bytes())
	write("kernel/lib/libcrc32c.ko.zst", z.EncodeAll(object("name=libcrc32c\x00"), nil))
	write("kernel/drivers/char/virtio_console.ko", object("name=virtio_console\x00depends=virtio_pci\x00"))
	write("kernel/net/sunrpc/sunrpc.ko", object("name=sunrpc\x00"))
	write("kernel/drivers/gpu/big.ko", object("name=big\x00"))
	return k
}

func TestBaseArchive(t *testing.T) {
	k := testKernel(t)
	file, err := baseArchive(k)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"lib/modules/6.1.0-test/kernel/net/netfilter/ipvs/ip_vs.ko\x00",
		"lib/modules/6.1.0-test/kernel/net/netfilter/nf_conntrack.ko\x00",
		"lib/modules/6.1.0-test/kernel/lib/libcrc32c.ko\x00",
		"lib/modules/6.1.0-test/kernel/drivers/char/virtio_console.ko\x00",
		"name=libcrc32c\x00",
		"name=nf_conntrack\x00",
		"module ip_vs kernel/net/netfilter/ipvs/ip_vs.ko\ndepends nf_conntrack\n",
		"builtin virtio_pci\n",
	} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("the archive lacks %q", want)
		}
	}
	for _, not := range []string{"sunrpc.ko\x00", "big.ko\x00"} {
		if bytes.Contains(data, []byte(not)) {
			t.Errorf("the archive has %q", not)
		}
	}
	// The second time it is there already.
	if err := os.RemoveAll(k.modules); err != nil {
		t.Fatal(err)
	}
	if again, err := baseArchive(k); err != nil || again != file {
		t.Errorf("second call = %s, %v, want %s", again, err, file)
	}
}

func TestBaseArchiveNeedsIPVS(t *testing.T) {
	k := testKernel(t)
	if err := os.Remove(filepath.Join(k.modules, "kernel/net/netfilter/ipvs/ip_vs.ko")); err != nil {
		t.Fatal(err)
	}
	_, err := baseArchive(k)
	if err == nil || !strings.Contains(err.Error(), "6.1.0-test is of no use here: module ip_vs not found") {
		t.Errorf("error = %v, want one that names kernel and module", err)
	}
	if left, _ := filepath.Glob(filepath.Join(k.dir, "*base-*")); len(left) > 0 {
		t.Errorf("the failed call left %v", left)
	}
}

func TestReadModuleBroken(t *testing.T) {
	for _, name := range []string{"a.ko.xz", "a.ko.zst"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte("not packed"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readModule(file); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error = %v, want one that names %s", err, name)
		}
	}
}

func TestUnsigned(t *testing.T) {
	signed := func(body string, n uint32, signature string) string {
		b := append([]byte(body+signature), 0, 0, 2, 0, 0, 0, 0, 0)
		return string(binary.BigEndian.AppendUint32(b, n)) + signatureMark
	}
	tests := []struct{ name, in, want string }{
		{"unsigned", "module", "module"},
		{"empty", "", ""},
		{"signed", signed("module", 3, "sig"), "module"},
		{"nothing but a mark", signatureMark, signatureMark},
		{"signature longer than the file", signed("m", 1<<31, "sig"), signed("m", 1<<31, "sig")},
		{"signature is the whole file", signed("", 3, "sig"), ""},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, string(unsigned([]byte(tt.in)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestSelectModulesSkipsBroken(t *testing.T) {
	var x kmod.Index
	x.Add(kmod.Module{Name: "good", Path: "kernel/net/good.ko"})
	x.Add(kmod.Module{Name: "lost", Path: "kernel/net/lost.ko", Depends: []string{"gone"}})
	var got []string
	for _, m := range selectModules(&x) {
		got = append(got, m.Name)
	}
	if diff := cmp.Diff([]string{"good"}, got); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}
