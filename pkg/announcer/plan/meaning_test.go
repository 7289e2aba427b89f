package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestEveryReasonHasAMeaning reads the reasons from where they are declared.
func TestEveryReasonHasAMeaning(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "plan.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if Reason(text).Meaning() == "" {
			t.Errorf("%s has no meaning", text)
		}
		return true
	})
	if found < 20 {
		t.Errorf("only %d reasons found", found)
	}
	if got := Reason("OfAnotherRelease").Meaning(); got != "" {
		t.Errorf("an unknown reason means %s", got)
	}
}
