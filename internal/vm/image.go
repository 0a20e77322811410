package vm

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lbd-project/lbd/internal/vm/cpio"
)

// toolPackages tells which Debian package holds a tool.
var toolPackages = map[string]string{
	"bridge": "iproute2", "busybox": "busybox-static", "conntrack": "conntrack", "ip": "iproute2",
	"ipvsadm": "ipvsadm", "iptables": "iptables", "keepalived": "keepalived", "nft": "nftables",
	"qemu-system-x86_64": "qemu-system-x86", "ss": "iproute2", "tc": "iproute2", "tcpdump": "tcpdump",
}

// Image collects the files of a guest. The zero value is empty and ready for
// use; it is not safe for concurrent use.
type Image struct {
	files map[string]string // guest path -> host path
	texts map[string]text   // guest path -> contents made here
	links map[string]string // guest path -> target
}

type text struct {
	perm uint32
	data []byte
}

// Add ships the host's file, or folder with all that is in it, as the guest's
// path. ELF programs bring the libraries that they need.
func (m *Image) Add(host, guest string) error {
	host, err := filepath.Abs(host)
	if err != nil {
		return err
	}
	return filepath.WalkDir(host, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(host, file)
		if err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			if file == host {
				return fmt.Errorf("%s is neither a file nor a folder", host)
			}
			return nil
		}
		return m.addFile(file, path.Join(guest, filepath.ToSlash(rel)), info.Mode())
	})
}

func (m *Image) addFile(host, guest string, mode fs.FileMode) error {
	if m.files == nil {
		m.files = make(map[string]string)
	}
	m.files[path.Join("/", guest)] = host
	if mode&0o111 == 0 || !isELF(host) {
		return nil
	}
	libs, err := libraries(host, libraryDirs)
	if err != nil {
		return fmt.Errorf("ship %s: %w", host, err)
	}
	for _, l := range libs {
		m.files[inUsr(l)] = l
	}
	return nil
}

// AddTool ships a program of the host's PATH under the host's own path, and
// returns that path.
func (m *Image) AddTool(name string) (string, error) {
	file, err := lookTool(name)
	if err != nil {
		return "", err
	}
	guest := inUsr(file)
	if err := m.Add(file, guest); err != nil {
		return "", err
	}
	if name == "busybox" {
		// Scripts that tools run need a shell. Note that this one prefers its
		// own ip to iproute2's.
		m.link("/usr/bin/sh", guest)
	}
	return guest, nil
}

// lookTool finds a program on PATH or where administrators' programs are. The
// error names the Debian package to install.
func lookTool(name string) (string, error) {
	file, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin"} {
		if err == nil {
			break
		}
		file, err = exec.LookPath(filepath.Join(dir, name))
	}
	if err != nil {
		return "", missingTool(name)
	}
	return filepath.Abs(file)
}

func missingTool(name string) error {
	if p := toolPackages[name]; p != "" {
		return fmt.Errorf("%s is not installed: apt-get install --no-install-recommends %s", name, p)
	}
	return fmt.Errorf("%s is not installed", name)
}

// AddText ships contents made here.
func (m *Image) AddText(guest string, perm uint32, data []byte) {
	if m.texts == nil {
		m.texts = make(map[string]text)
	}
	m.texts[path.Join("/", guest)] = text{perm, data}
}

func (m *Image) link(guest, target string) {
	if m.links == nil {
		m.links = make(map[string]string)
	}
	m.links[guest] = target
}

// inUsr returns where a file of a merged-/usr system really is.
func inUsr(file string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(file, dir) {
			return "/usr" + file
		}
	}
	return file
}

// write writes the image as an archive that also holds the links and files that
// every guest has.
func (m *Image) write(w io.Writer) error {
	c := cpio.NewWriter(w)
	for _, dir := range []string{"bin", "sbin", "lib64"} {
		if err := c.Dir("usr/" + dir); err != nil {
			return err
		}
		if err := c.Symlink(dir, "usr/"+dir); err != nil {
			return err
		}
	}
	// lib holds the modules already, so only its subfolder is a link.
	if err := c.Symlink("lib/x86_64-linux-gnu", "../usr/lib/x86_64-linux-gnu"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.links)) {
		if err := c.Symlink(name, m.links[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.texts)) {
		if err := c.File(name, m.texts[name].perm, m.texts[name].data); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		host := m.files[name]
		info, err := os.Stat(host)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(host)
		if err != nil {
			return err
		}
		if err := c.File(name, uint32(info.Mode().Perm()), data); err != nil {
			return err
		}
	}
	return c.Close()
}

// addSystemFiles adds what the C library and tools look for in /etc.
func (m *Image) addSystemFiles() {
	for name, data := range map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
		"/etc/hosts":         "127.0.0.1 localhost lbd-vm\n::1 localhost\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"/etc/protocols":     "icmp 1 ICMP\nipip 4 IPIP\ntcp 6 TCP\nudp 17 UDP\ngre 47 GRE\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n",
	} {
		m.AddText(name, 0o644, []byte(data))
	}
	m.AddText("/root/.keep", 0o644, nil)
}
