package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// modulePath is that of go.mod.
const modulePath = "github.com/tocsinhq/tocsin"

// Module is what the rules read: the Go files and the other text files of the module.
type Module struct {
	Go    []*File
	Texts []Text // all files with text in them, Go files too
}

// Text is any file, by its slash-separated path in the module.
type Text struct {
	Path, Body string
}

// File is a parsed Go file.
type File struct {
	Path string // slash-separated, from the module's root: "store/peek.go"
	Src  []byte
	AST  *ast.File
	fset *token.FileSet
}

// Load reads the module in the folder root, without hidden folders other than .ci, testdata, and modules of their own.
func Load(root string) (Module, error) {
	var m Module
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(root, name):
			return fs.SkipDir
		case d.IsDir() || !isText(name):
			return nil
		}
		return m.read(root, name)
	})
	return m, err
}

// skipped reports whether the folder is no part of the module.
func skipped(root, name string) bool {
	if name == "." || name == ".ci" {
		return false
	}
	if _, err := os.Stat(filepath.Join(root, name, "go.mod")); err == nil {
		return true
	}
	base := path.Base(name)
	return strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "tmp"
}

// isText tells text by its name: what has no ending is a script or a Makefile.
func isText(name string) bool {
	switch path.Ext(name) {
	case "", ".go", ".mod", ".sql", ".sh", ".md", ".yaml", ".yml", ".json", ".service":
		return true
	}
	return false
}

// read adds one file.
func (m *Module) read(root, name string) error {
	body, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	m.Texts = append(m.Texts, Text{Path: name, Body: string(body)})
	if path.Ext(name) != ".go" {
		return nil
	}
	f, err := Parse(name, body)
	if err != nil {
		return err
	}
	m.Go = append(m.Go, f)
	return nil
}

// Parse reads one Go file, as if it stood at name in the module.
func Parse(name string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	return &File{Path: name, Src: src, AST: tree, fset: fset}, err
}

// Dir is the file's folder in the module, "." for the root.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsTest reports whether the file is compiled for tests alone.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// lines counts the file's lines.
func (f *File) lines() int { return strings.Count(string(f.Src), "\n") }

// at begins a complaint about the line of pos.
func (f *File) at(pos token.Pos, format string, args ...any) string {
	return f.Path + ":" + strconv.Itoa(f.fset.Position(pos).Line) + ": " + fmt.Sprintf(format, args...)
}

// shipped returns the files that are not tests.
func (m Module) shipped() []*File {
	var files []*File
	for _, f := range m.Go {
		if !f.IsTest() {
			files = append(files, f)
		}
	}
	return files
}
