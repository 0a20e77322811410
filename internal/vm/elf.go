package vm

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryDirs are where Debian and Ubuntu keep shared libraries.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// isELF says whether file starts like an ELF object.
func isELF(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	magic, err := bufio.NewReader(f).Peek(4)
	return err == nil && string(magic) == elf.ELFMAG
}

// libraries returns the files that the dynamic loader needs to start the ELF
// program file: its interpreter and all shared libraries, as found in its run
// path or dirs. A static program needs none.
func libraries(file string, dirs []string) ([]string, error) {
	var out []string
	seen := make(map[string]bool)
	todo := []string{file}
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		deps, err := neededBy(next, dirs)
		if err != nil {
			return nil, err
		}
		for _, d := range deps {
			if !seen[d] {
				seen[d] = true
				out = append(out, d)
				todo = append(todo, d)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// neededBy returns the direct needs of one ELF object.
func neededBy(file string, dirs []string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("%s: made for %v, the guest is EM_X86_64", file, f.Machine)
	}
	var out []string
	if interp, err := interpreter(f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	} else if interp != "" {
		out = append(out, interp)
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	search := append(runPath(f, filepath.Dir(file)), dirs...)
	for _, n := range names {
		lib, err := findLibrary(n, search)
		if err != nil {
			return nil, fmt.Errorf("%s needs %w", file, err)
		}
		out = append(out, lib)
	}
	return out, nil
}

// interpreter returns the dynamic loader that f asks for, or "".
func interpreter(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		if p.Filesz > 4096 {
			return "", errors.New("interpreter name is too long")
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			return "", fmt.Errorf("read interpreter: %w", err)
		}
		return strings.TrimRight(string(b), "\x00"), nil
	}
	return "", nil
}

func runPath(f *elf.File, origin string) []string {
	var out []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, err := f.DynString(tag)
		if err != nil {
			continue
		}
		for _, p := range paths {
			for dir := range strings.SplitSeq(p, ":") {
				if dir != "" {
					dir = strings.ReplaceAll(dir, "${ORIGIN}", origin)
					out = append(out, strings.ReplaceAll(dir, "$ORIGIN", origin))
				}
			}
		}
	}
	return out
}

func findLibrary(name string, dirs []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, d := range dirs {
		file := filepath.Join(d, name)
		// Skip an object of another architecture, as the loader does.
		if f, err := elf.Open(file); err == nil {
			ok := f.Machine == elf.EM_X86_64 && f.Class == elf.ELFCLASS64
			f.Close()
			if ok {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("library %s, which is not in %s", name, strings.Join(dirs, ", "))
}
