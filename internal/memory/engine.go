package memory

import (
	"bytes"
	"errors"
	"io/fs"
)

// engineName is the file of EngineFile.
const engineName = "engine.state"

// EngineFile keeps what an engine must remember beside the Memory, in bytes that
// only the engine understands. Like the Memory it is of one boot. It may be used
// while the Store is; its own methods must not be called concurrently.
type EngineFile struct{ store *Store }

// EngineFile returns the engine's file. It works until the Store is closed.
func (s *Store) EngineFile() *EngineFile { return &EngineFile{s} }

// Load returns what the last Save of this boot wrote, nil if there is nothing.
func (f *EngineFile) Load() ([]byte, error) {
	b, err := f.store.read(engineName)
	if err != nil || b == nil {
		return nil, err
	}
	bootID, data, ok := bytes.Cut(b, []byte("\n"))
	switch {
	case !ok:
		return nil, f.store.moveAside(engineName, errors.New("no boot ID"))
	case string(bootID) != f.store.bootID:
		f.store.log.Info("memory of an earlier boot is ignored", "file", f.store.dir.Path(engineName))
		return nil, nil
	}
	return data, nil
}

// Save writes data in place of what is there, wholly or not at all. Nothing to
// keep removes the file.
func (f *EngineFile) Save(data []byte) error {
	if len(data) == 0 {
		err := f.store.dir.Remove(engineName)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return f.store.dir.Replace(engineName, []byte(f.store.bootID+"\n"), data)
}
