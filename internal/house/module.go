package house

import (
	"errors"
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

// modulePath is that of go.mod. The paths of the other modules in go.work begin with it.
const modulePath = "github.com/tocsinhq/tocsin"

// Module is what the rules read: the Go files and the other text files of all modules in go.work.
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
	Path string // slash-separated, from the module's root: "internal/store/peek.go"
	Src  []byte
	AST  *ast.File
	fset *token.FileSet
}

// Load reads the module in the folder root and the modules of its go.work, without hidden folders other than .ci and
// without testdata. Other modules below root are left out.
func Load(root string) (Module, error) {
	var m Module
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(root, string(work), name):
			return fs.SkipDir
		case d.IsDir() || !isText(name):
			return nil
		}
		return m.read(root, name)
	})
	return m, err
}

// skipped reports whether the folder belongs to none of the modules. work is the text of go.work.
func skipped(root, work, name string) bool {
	if name == "." || name == ".ci" {
		return false
	}
	if _, err := os.Stat(filepath.Join(root, name, "go.mod")); err == nil && !strings.Contains(work, "\t./"+name+"\n") {
		return true
	}
	base := path.Base(name)
	return strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "tmp"
}

// isText tells text by its name: what has no ending is a script or a Makefile.
func isText(name string) bool {
	switch path.Ext(name) {
	case "", ".go", ".mod", ".work", ".sql", ".sh", ".md", ".yaml", ".yml", ".json", ".service":
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
