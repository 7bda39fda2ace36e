// Command modzip writes one Go module as the zip file that a module proxy serves.
//
//	modzip MODULE@VERSION DIR FILE
//
// It exists beside golang.org/x/mod/zip because the root module requires nothing outside the standard library. What
// the go command refuses in a zip (name collisions, sizes) is left to the go command that reads the file.
package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: modzip MODULE@VERSION DIR FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.DirFS(os.Args[2]), os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "modzip:", err)
		os.Exit(1)
	}
}

// write zips the module in dir, each name behind prefix, into a new file.
func write(prefix string, dir fs.FS, name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	z := zip.NewWriter(f)
	err = fs.WalkDir(dir, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && isModule(dir, p):
			return fs.SkipDir // another module, with a zip of its own
		case !d.Type().IsRegular():
			return nil // the format has no directories and no links
		}
		return add(z, prefix, dir, p)
	})
	return errors.Join(err, z.Close())
}

func isModule(dir fs.FS, p string) bool {
	_, err := fs.Stat(dir, path.Join(p, "go.mod"))
	return err == nil
}

func add(z *zip.Writer, prefix string, dir fs.FS, p string) error {
	src, err := dir.Open(p)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := z.Create(prefix + "/" + p)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return err
}
